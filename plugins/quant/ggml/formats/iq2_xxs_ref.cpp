#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 66 bytes: d = h(0); at 2, eight bytes a group of 32: four indices of 8 elements,
/// then a u32 A of four times 7 sign bits and the scale. y = ((d * (0.5 + (A >> 28))) * 0.25) *
/// entry.
void decode_iq2_xxs(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 66, out += 256) {
        const float d = load_half(blocks);
        for (int g = 0; g < 8; ++g) {
            const std::uint8_t* group = blocks + 2 + 8 * g;
            const auto a = load<std::uint32_t>(group + 4);
            const float scale = d * (0.5f + static_cast<float>(a >> 28)) * 0.25f;
            for (int e = 0; e < 32; ++e)
                out[32 * g + e] = signed_magnitude(scale, kIq2XxsCodebook.entry[group[e / 8]],
                                                   e % 8, even_signs(a >> (7 * (e / 8)) & 127u));
        }
    }
}

}  // namespace ggml
