#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 36 bytes: d = h(0), h(2) is d times the sum of q (for kernels), s8 at 4. y = q * d.
void decode_q8_1(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 36, out += 32) {
        const float d = load_half(blocks);
        for (int e = 0; e < 32; ++e)
            out[e] = static_cast<float>(static_cast<std::int8_t>(blocks[4 + e])) * d;
    }
}

}  // namespace ggml
