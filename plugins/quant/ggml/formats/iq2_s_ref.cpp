#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 82 bytes: d = h(0); per 8 elements the lower 8 bits of an index at 2, a byte of
/// signs at 34 and the upper 2 bits of the index at 66; at 74 a nibble per 16 elements: s. y = ((d
/// * (0.5 + s)) * 0.25) * entry.
void decode_iq2_s(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 82, out += 256) {
        const float d = load_half(blocks);
        for (int c = 0; c < 32; ++c) {
            const int index = blocks[2 + c] | ((blocks[66 + c / 4] >> (2 * (c % 4))) & 3) << 8;
            const int s = (blocks[74 + c / 4] >> (4 * (c % 4 / 2))) & 15;
            const float scale = d * (0.5f + static_cast<float>(s)) * 0.25f;
            for (int j = 0; j < 8; ++j)
                out[8 * c + j] =
                    signed_magnitude(scale, kIq2SCodebook.entry[index], j, blocks[34 + c]);
        }
    }
}

}  // namespace ggml
