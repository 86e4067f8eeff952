#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 74 bytes: d = h(0); at 2 a u16 per 8 elements: 9 bits of index, 7 sign bits; at 66
/// a nibble per 16 elements: s. y = ((d * (0.5 + s)) * 0.25) * entry.
void decode_iq2_xs(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 74, out += 256) {
        const float d = load_half(blocks);
        for (int c = 0; c < 32; ++c) {
            const unsigned w = load<std::uint16_t>(blocks + 2 + 2 * c);
            const int s = (blocks[66 + c / 4] >> (4 * (c % 4 / 2))) & 15;
            const float scale = d * (0.5f + static_cast<float>(s)) * 0.25f;
            for (int j = 0; j < 8; ++j)
                out[8 * c + j] =
                    signed_magnitude(scale, kIq2XsCodebook.entry[w & 511u], j, even_signs(w >> 9));
        }
    }
}

}  // namespace ggml
