#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/k_scale.hpp"

namespace ggml {

/// 256 elements, 144 bytes: d = h(0), dmin = h(2), 6-bit scales and mins at 4, nibbles at 16: byte
/// 32 * (e div 64) + e mod 32, low nibble for even groups of 32. y = ((d * scale) * q) - (dmin *
/// min).
void decode_q4_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 144, out += 256) {
        const float d = load_half(blocks), dmin = load_half(blocks + 2);
        for (int g = 0; g < 8; ++g) {
            const KScale s = k_scale(blocks + 4, g);
            const float scale = d * static_cast<float>(s.scale),
                        min = dmin * static_cast<float>(s.min);
            for (int e = 32 * g; e < 32 * g + 32; ++e) {
                const int q = ((blocks[16 + 32 * (g / 2) + e % 32] >> (4 * (g % 2))) & 15);
                out[e] = scale * static_cast<float>(q) - min;
            }
        }
    }
}

}  // namespace ggml
