#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/levels.hpp"

namespace ggml {

/// 256 elements, 136 bytes: d = h(0), high 2 bits of eight 6-bit scales u16 at 2, low nibbles at 4,
/// 16 bytes of nibbles a group of 32 at 8. y = (d * (scale - 32)) * level[q].
void decode_iq4_xs(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 136, out += 256) {
        const float d = load_half(blocks);
        const auto high = load<std::uint16_t>(blocks + 2);
        for (int g = 0; g < 8; ++g) {
            const int scale = ((blocks[4 + g / 2] >> (4 * (g % 2))) & 15) | ((high >> (2 * g)) & 3)
                                                                                << 4;
            const float group = d * static_cast<float>(scale - 32);
            for (int e = 0; e < 32; ++e) {
                const int q = split_nibble(blocks + 8 + 16 * g, e);
                out[32 * g + e] = group * static_cast<float>(kIq4Levels[q]);
            }
        }
    }
}

}  // namespace ggml
