#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 64 elements, 18 bytes: d = h(0), 2-bit values at 2, neighbours in one byte. y = (q - 1) * d.
void decode_q2_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 18, out += 64) {
        const float d = load_half(blocks);
        for (int e = 0; e < 64; ++e)
            out[e] = static_cast<float>(((blocks[2 + e / 4] >> (2 * (e % 4))) & 3) - 1) * d;
    }
}

}  // namespace ggml
