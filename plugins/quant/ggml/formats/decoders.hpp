#pragma once

// The definitions: one decoder a format, each in its own <format>_ref.cpp. See ggml::DecodeFn.
// Layouts: GGUF tensor types as of llama.cpp, August 2026. In the formulas u8[k] is the byte at
// offset k of the block, h(k) the fp16 at offset k, e the element inside the block.

#include <cstdint>

namespace ggml {

// clang-format off
void decode_f32(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_f16(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_bf16(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q4_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q4_1(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q5_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q5_1(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q8_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q2_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q3_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q4_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q5_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_q6_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_iq4_nl(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_iq4_xs(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
void decode_mxfp4(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
// clang-format on

}  // namespace ggml
