#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 256 elements, 66 bytes: 2-bit values at 0, laid out as those of q2_k; d = h(64). y = (q - 1) *
/// d.
void decode_tq2_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 66, out += 256) {
        const float d = load_half(blocks + 64);
        for (int e = 0; e < 256; ++e) out[e] = static_cast<float>(crumb_256(blocks, e) - 1) * d;
    }
}

}  // namespace ggml
