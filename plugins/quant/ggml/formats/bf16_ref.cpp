#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// The upper half of an f32: bits = value << 16.
void decode_bf16(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t i = 0; i < num_blocks; ++i)
        out[i] = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(blocks + 2 * i)} << 16);
}

}  // namespace ggml
