#pragma once

#include <cstdint>

namespace ggml {

/// Scale and min of one group of 32 in a block of q4_k or q5_k.
struct KScale {
    int scale, min;  // 0..63
};

/// @param s  the 12 bytes that hold eight 6-bit scales and eight 6-bit mins
/// @param g  group, 0..7
[[nodiscard]] constexpr KScale k_scale(const std::uint8_t* s, int g) noexcept {
    if (g < 4) return {s[g] & 63, s[g + 4] & 63};
    return {(s[g + 4] & 15) | (s[g - 4] >> 6) << 4, (s[g + 4] >> 4) | (s[g] >> 6) << 4};
}

}  // namespace ggml
