#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 24 bytes: d = h(0), m = h(2), fifth bits u32 at 4, nibbles at 8. y = (q * d) + m.
void decode_q5_1(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 24, out += 32) {
        const float d = load_half(blocks), m = load_half(blocks + 2);
        const auto high = load<std::uint32_t>(blocks + 4);
        for (int e = 0; e < 32; ++e) {
            const int q = split_nibble(blocks + 8, e) | static_cast<int>((high >> e) & 1u) << 4;
            out[e] = static_cast<float>(q) * d + m;
        }
    }
}

}  // namespace ggml
