#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 18 bytes: d = h(0), nibbles at 2. y = (q - 8) * d.
void decode_q4_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 18, out += 32) {
        const float d = load_half(blocks);
        for (int e = 0; e < 32; ++e)
            out[e] = static_cast<float>(split_nibble(blocks + 2, e) - 8) * d;
    }
}

}  // namespace ggml
