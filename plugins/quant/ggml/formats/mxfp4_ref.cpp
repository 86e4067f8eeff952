#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/levels.hpp"

namespace ggml {

/// 32 elements, 17 bytes: E8M0 exponent x at 0, nibbles at 1. y = level[q] * 2^(x - 128), where the
/// levels are twice the E2M1 values. x = 0 and 1 give subnormal scales; 255 decodes as 2^127.
void decode_mxfp4(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 17, out += 32) {
        const std::uint32_t x = blocks[0];
        const float d = std::bit_cast<float>(x < 2 ? 0x200000u << x : (x - 1) << 23);
        for (int e = 0; e < 32; ++e)
            out[e] = static_cast<float>(kFp4Levels[split_nibble(blocks + 1, e)]) * d;
    }
}

}  // namespace ggml
