#pragma once

// Scalar conversions between f32 and the two 16-bit formats. Source: IEEE 754-2019, section 3.4
// (binary16); bf16 is the upper half of binary32.

#include <bit>
#include <cstdint>

namespace attention {

[[nodiscard]] inline float f16_to_f32(std::uint16_t h) noexcept {
    const std::uint32_t sign = (h & 0x8000U) << 16;
    const std::uint32_t magnitude = h & 0x7fffU;
    if (magnitude >= 0x7c00U)  // infinity and NaN
        return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    if (magnitude >= 0x400U)
        return std::bit_cast<float>(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
    return (h & 0x8000U) != 0 ? -subnormal : subnormal;
}

/// Rounds to nearest, ties to even; from 65520 on to infinity.
[[nodiscard]] inline std::uint16_t f32_to_f16(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = bits >> 16 & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U)  // NaN stays NaN, made quiet
        return static_cast<std::uint16_t>(sign | 0x7e00U | (magnitude >> 13 & 0x3ffU));
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
    if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24; adding 0.5 rounds to one
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    }
    const std::uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded >> 13) - ((127U - 15U) << 10)));
}

[[nodiscard]] inline float bf16_to_f32(std::uint16_t h) noexcept {
    return std::bit_cast<float>(std::uint32_t{h} << 16);
}

/// Rounds to nearest, ties to even.
[[nodiscard]] inline std::uint16_t f32_to_bf16(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace attention
