#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

namespace ggml {

/// 256 elements, 110 bytes: d = h(0); per 4 elements the lower 8 bits of an index at 2 and the
/// ninth at 66; a sign bit an element at 74; at 106 a nibble per 32 elements: s. y = (d * (1 + 2s))
/// * entry.
void decode_iq3_s(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 110, out += 256) {
        const float d = load_half(blocks);
        for (int i = 0; i < 64; ++i) {
            const int g = i / 8;
            const int index = blocks[2 + i] | ((blocks[66 + g] >> (i % 8)) & 1) << 8;
            const int s = (blocks[106 + g / 2] >> (4 * (g % 2))) & 15;
            const float scale = d * static_cast<float>(1 + 2 * s);
            const unsigned signs = static_cast<unsigned>(blocks[74 + i / 2]) >> (i % 2 * 4);
            for (int j = 0; j < 4; ++j)
                out[4 * i + j] = signed_magnitude(scale, kIq3SCodebook.entry[index], j, signs);
        }
    }
}

}  // namespace ggml
