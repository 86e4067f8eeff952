#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/k_scale.hpp"

namespace ggml {

/// 256 elements, 176 bytes: q4_k with fifth bits at 16 (bit g of byte e mod 32) and nibbles at 48.
/// y = ((d * scale) * q) - (dmin * min).
void decode_q5_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 176, out += 256) {
        const float d = load_half(blocks), dmin = load_half(blocks + 2);
        for (int g = 0; g < 8; ++g) {
            const KScale s = k_scale(blocks + 4, g);
            const float scale = d * static_cast<float>(s.scale),
                        min = dmin * static_cast<float>(s.min);
            for (int e = 32 * g; e < 32 * g + 32; ++e) {
                const int q = ((blocks[48 + 32 * (g / 2) + e % 32] >> (4 * (g % 2))) & 15) |
                              ((blocks[16 + e % 32] >> g) & 1) << 4;
                out[e] = scale * static_cast<float>(q) - min;
            }
        }
    }
}

}  // namespace ggml
