#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

namespace {

/// Digit n in base 3 of a byte that holds ceil(value * 256 / 243), less one.
int digit(std::uint8_t byte, int n) {
    constexpr unsigned kPower[] = {1, 3, 9, 27, 81};
    return static_cast<int>(((byte * kPower[n] & 255u) * 3) >> 8) - 1;
}

}  // namespace

/// 256 elements, 54 bytes: five base-3 digits a byte at 0 (32 bytes, then 16), four a byte at 48;
/// the first digits of all bytes are neighbours, then the second ones. d = h(52). y = digit * d.
void decode_tq1_0(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t b = 0; b < num_blocks; ++b, blocks += 54, out += 256) {
        const float d = load_half(blocks + 52);
        const auto at = [&](int byte, int n) {
            return static_cast<float>(digit(blocks[byte], n)) * d;
        };
        for (int e = 0; e < 160; ++e) out[e] = at(e % 32, e / 32);
        for (int e = 0; e < 80; ++e) out[160 + e] = at(32 + e % 16, e / 16);
        for (int e = 0; e < 16; ++e) out[240 + e] = at(48 + e % 4, e / 4);
    }
}

}  // namespace ggml
