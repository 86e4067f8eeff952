#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 34 bytes: d = h(0), s8 at 2. y = q * d.
void decode_q8_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 34, out += 32) {
        const float d = load_half(blocks);
        for (int e = 0; e < 32; ++e)
            out[e] = static_cast<float>(static_cast<std::int8_t>(blocks[2 + e])) * d;
    }
}

}  // namespace ggml
