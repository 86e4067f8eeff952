#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/levels.hpp"

namespace ggml {

/// 64 elements, 36 bytes: four UE4M3 scales at 0, one a group of 16; 8 bytes of nibbles a group at
/// 4, the low ones first. y = level[q] * (scale * 0.5), where the levels are twice the E2M1 values.
/// UE4M3: three bits of mantissa m, four of exponent x with a bias of 7; 0x7f is zero.
void decode_nvfp4(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 36, out += 64) {
        for (int g = 0; g < 4; ++g) {
            const unsigned x = (blocks[g] >> 3) & 15u, m = blocks[g] & 7u;
            float scale = x == 0 ? static_cast<float>(m) * 0x1p-9f
                                 : std::bit_cast<float>((x + 120u) << 23 | m << 20);
            if (blocks[g] == 0x7f) scale = 0;
            for (int r = 0; r < 16; ++r) {
                const int q = (blocks[4 + 8 * g + r % 8] >> (4 * (r / 8))) & 15;
                out[16 * g + r] = static_cast<float>(kFp4Levels[q]) * (scale * 0.5f);
            }
        }
    }
}

}  // namespace ggml
