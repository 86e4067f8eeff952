#pragma once

// Reading fields of stored blocks. Scalar; for the definitions, and what is constexpr for the kernels of
// CUDA too. (The kernels of the SIMD tiers are
// compiled for newer processors and must not share inline functions with the rest: see README.md.)

#include <bit>
#include <cstdint>
#include <cstring>

namespace ggml {

/// A little-endian field at any address.
template <class T>
[[nodiscard]] inline T load(const std::uint8_t* p) noexcept {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

/// IEEE binary16 to f32, exact; subnormals, infinities and NaN included.
[[nodiscard]] inline float half_to_float(std::uint16_t h) noexcept {
    const std::uint32_t sign = (h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

[[nodiscard]] inline float load_half(const std::uint8_t* p) noexcept {
    return half_to_float(load<std::uint16_t>(p));
}

/// f32 to IEEE binary16, to nearest even; too large becomes infinite, NaN stays NaN.
[[nodiscard]] inline std::uint16_t float_to_half(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal half: adding 0.5 leaves the rounded mantissa below
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

/// f32 to bf16, to nearest even; NaN stays NaN.
[[nodiscard]] inline std::uint16_t float_to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Four bits of element e where the low nibbles are the first half of a group of 32.
[[nodiscard]] constexpr int split_nibble(const std::uint8_t* qs, int e) noexcept {
    return (qs[e % 16] >> (4 * (e / 16))) & 15;
}

/// Two bits of element e of 256: byte = 32 * (e div 128) + e mod 32, shift by the group of 32.
[[nodiscard]] constexpr int crumb_256(const std::uint8_t* qs, int e) noexcept {
    return (qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
}

}  // namespace ggml
