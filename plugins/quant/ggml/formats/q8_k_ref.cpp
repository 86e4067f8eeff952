#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 256 elements, 292 bytes: d f32 at 0, s8 at 4, sums of sixteen q each at 260 (for kernels).
/// y = d * q.
void decode_q8_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 292, out += 256) {
        const auto d = load<float>(blocks);
        for (int e = 0; e < 256; ++e)
            out[e] = d * static_cast<float>(static_cast<std::int8_t>(blocks[4 + e]));
    }
}

}  // namespace ggml
