#pragma once

// What the codebook formats have in common.

#include "plugins/quant/ggml/bytes.hpp"

#include <bit>

namespace ggml {

/// Eight sign bits from seven: the last one makes the number of set bits even.
[[nodiscard]] constexpr unsigned even_signs(unsigned seven) noexcept {
    return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

/// Byte j of a codebook entry, negative where bit j of `signs` is set, times `scale`.
[[nodiscard]] constexpr float signed_magnitude(float scale, std::uint64_t entry, int j,
                                            unsigned signs) noexcept {
    const float value = scale * static_cast<float>(entry >> (8 * j) & 255u);
    return ((signs >> j) & 1u) != 0 ? -value : value;
}

/// Eight elements of iq1_s and iq1_m from a codebook entry of eight times the level, -1, 0 or 1.
constexpr void decode_iq1(float scale, std::uint64_t entry, bool is_delta_negative,
                       float* out) noexcept {
    const float delta = is_delta_negative ? -0.125f : 0.125f;
    for (int j = 0; j < 8; ++j)
        out[j] =
            scale * (static_cast<float>(static_cast<std::int8_t>(entry >> (8 * j))) / 8.0f + delta);
}

/// The fp16 of iq1_m: the upper four bits of each of its four words of scales at 48.
[[nodiscard]] inline std::uint16_t iq1_m_scale(const std::uint8_t* block) noexcept {
    unsigned bits = 0;
    for (int i = 0; i < 4; ++i)
        bits |= static_cast<unsigned>(load<std::uint16_t>(block + 48 + 2 * i) >> 12) << (4 * i);
    return static_cast<std::uint16_t>(bits);
}

}  // namespace ggml
