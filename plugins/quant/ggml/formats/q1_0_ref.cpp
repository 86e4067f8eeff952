#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 128 elements, 18 bytes: d = h(0), bits at 2. y = d where the bit is set, else -d.
void decode_q1_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 18, out += 128) {
        const float d = load_half(blocks);
        for (int e = 0; e < 128; ++e) out[e] = ((blocks[2 + e / 8] >> (e % 8)) & 1) != 0 ? d : -d;
    }
}

}  // namespace ggml
