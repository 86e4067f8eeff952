#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

#include <cstddef>

namespace ggml {

/// IEEE binary32, little-endian.
void decode_f32(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    std::memcpy(out, blocks, static_cast<std::size_t>(num_blocks) * 4);
}

}  // namespace ggml
