#pragma once

// The definitions: one decoder a format, each in its own <format>_ref.cpp. See ggml::DecodeFn.
// Layouts: GGUF tensor types as of llama.cpp, August 2026. In the formulas u8[k] is the byte at
// offset k of the block, h(k) the fp16 at offset k, e the element inside the block.

#include <cstdint>

namespace ggml {

#define FORMAT(id, block_cols, block_bytes, check) \
    void decode_##id(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
#include "plugins/quant/ggml/formats/formats.inc"
#undef FORMAT

}  // namespace ggml
