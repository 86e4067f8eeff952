#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 50 bytes: d = h(0); the lower 8 bits of an index per 8 elements at 2; at 34 a u16
/// H per 32 elements: four times 3 upper bits, three of scale s, the sign of delta = 0.125. y = (d
/// * (2s + 1)) * (level + delta).
void decode_iq1_s(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 50, out += 256) {
        const float d = load_half(blocks);
        for (int c = 0; c < 32; ++c) {
            const unsigned h = load<std::uint16_t>(blocks + 34 + c / 4 * 2);
            const unsigned index = blocks[2 + c] | (h >> (3 * (c % 4)) & 7u) << 8;
            const float scale = d * static_cast<float>(2 * (h >> 12 & 7u) + 1);
            decode_iq1(scale, kIq1Codebook.entry[index], (h & 0x8000u) != 0, out + 8 * c);
        }
    }
}

}  // namespace ggml
