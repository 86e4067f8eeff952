#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 98 bytes: d = h(0); an index per 4 elements at 2; at 66 a u32 A per 32 elements:
/// four times 7 sign bits and the scale. y = ((d * (0.5 + (A >> 28))) * 0.5) * entry.
void decode_iq3_xxs(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 98, out += 256) {
        const float d = load_half(blocks);
        for (int e = 0; e < 256; ++e) {
            const auto a = load<std::uint32_t>(blocks + 66 + e / 32 * 4);
            const float scale = d * (0.5f + static_cast<float>(a >> 28)) * 0.5f;
            const unsigned signs = even_signs(a >> (7 * (e % 32 / 8)) & 127u) >> (e % 8 / 4 * 4);
            out[e] =
                signed_magnitude(scale, kIq3XxsCodebook.entry[blocks[2 + e / 4]], e % 4, signs);
        }
    }
}

}  // namespace ggml
