#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// 256 elements, 84 bytes: u8[g] holds scale (low nibble) and min (high) of group g = e div 16;
/// 2-bit values at 16, d = h(80), dmin = h(82). y = ((d * scale) * q) - (dmin * min).
void decode_q2_k(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 84, out += 256) {
        const float d = load_half(blocks + 80), dmin = load_half(blocks + 82);
        for (int e = 0; e < 256; ++e) {
            const int scale = blocks[e / 16] & 15, min = blocks[e / 16] >> 4;
            out[e] = d * static_cast<float>(scale) * static_cast<float>(crumb_256(blocks + 16, e)) -
                     dmin * static_cast<float>(min);
        }
    }
}

}  // namespace ggml
