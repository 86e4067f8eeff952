#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 20 bytes: d = h(0), m = h(2), nibbles at 4. y = (q * d) + m.
void decode_q4_1(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 20, out += 32) {
        const float d = load_half(blocks), m = load_half(blocks + 2);
        for (int e = 0; e < 32; ++e)
            out[e] = static_cast<float>(split_nibble(blocks + 4, e)) * d + m;
    }
}

}  // namespace ggml
