#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/levels.hpp"

namespace ggml {

/// 32 elements, 18 bytes: d = h(0), nibbles at 2 name one of 16 levels. y = d * level[q].
void decode_iq4_nl(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 18, out += 32) {
        const float d = load_half(blocks);
        for (int e = 0; e < 32; ++e)
            out[e] = d * static_cast<float>(kIq4Levels[split_nibble(blocks + 2, e)]);
    }
}

}  // namespace ggml
