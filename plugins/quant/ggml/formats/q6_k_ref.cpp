#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 256 elements, 210 bytes: low nibbles at 0, high 2 bits at 128, sixteen s8 scales at 192,
/// d = h(208). y = (d * scale) * (q - 32).
void decode_q6_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 210, out += 256) {
        const float d = load_half(blocks + 208);
        for (int e = 0; e < 256; ++e) {
            const int half = e / 128, k = e % 128 / 32, l = e % 32;
            const int low = (blocks[64 * half + 32 * (k % 2) + l] >> (4 * (k / 2))) & 15;
            const int high = (blocks[128 + 32 * half + l] >> (2 * k)) & 3;
            const float scale =
                d * static_cast<float>(static_cast<std::int8_t>(blocks[192 + e / 16]));
            out[e] = scale * static_cast<float>((low | high << 4) - 32);
        }
    }
}

}  // namespace ggml
