#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 256 elements, 110 bytes: third bits at 0 (bit e div 32 of byte e mod 32; clear means minus 4),
/// 2-bit values at 32, sixteen 6-bit scales at 96, d = h(108). y = (d * (scale - 32)) * q.
void decode_q3_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 110, out += 256) {
        const float d = load_half(blocks + 108);
        const std::uint8_t* s = blocks + 96;
        for (int e = 0; e < 256; ++e) {
            const int g = e / 16;
            const int scale =
                ((s[g % 8] >> (4 * (g / 8))) & 15) | ((s[8 + g % 4] >> (2 * (g / 4))) & 3) << 4;
            const bool has_high = ((blocks[e % 32] >> (e / 32)) & 1) != 0;
            const int q = crumb_256(blocks + 32, e) - (has_high ? 0 : 4);
            out[e] = d * static_cast<float>(scale - 32) * static_cast<float>(q);
        }
    }
}

}  // namespace ggml
