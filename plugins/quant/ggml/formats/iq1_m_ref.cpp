#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 56 bytes: per 8 elements the lower 8 bits of an index at 0 and a nibble at 32:
/// three upper bits, the sign of delta = 0.125; at 48 four u16 T: four times 3 bits of scale s, one
/// per 16 elements, and a quarter of the fp16 d. y = (d * (2s + 1)) * (level + delta).
void decode_iq1_m(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 56, out += 256) {
        const float d = half_to_float(iq1_m_scale(blocks));
        for (int c = 0; c < 32; ++c) {
            const unsigned nibble = (blocks[32 + c / 2] >> (4 * (c % 2))) & 15u;
            const unsigned index = blocks[c] | (nibble & 7u) << 8;
            const unsigned t = load<std::uint16_t>(blocks + 48 + c / 8 * 2);
            const float scale = d * static_cast<float>(2 * (t >> (3 * (c % 8 / 2)) & 7u) + 1);
            decode_iq1(scale, kIq1Codebook.entry[index], (nibble & 8u) != 0, out + 8 * c);
        }
    }
}

}  // namespace ggml
