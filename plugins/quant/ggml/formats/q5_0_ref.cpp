#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 32 elements, 22 bytes: d = h(0), fifth bits u32 at 2, nibbles at 6. y = (q - 16) * d.
void decode_q5_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 22, out += 32) {
        const float d = load_half(blocks);
        const auto high = load<std::uint32_t>(blocks + 2);
        for (int e = 0; e < 32; ++e) {
            const int q = split_nibble(blocks + 6, e) | static_cast<int>((high >> e) & 1u) << 4;
            out[e] = static_cast<float>(q - 16) * d;
        }
    }
}

}  // namespace ggml
