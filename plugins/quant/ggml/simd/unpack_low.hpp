#pragma once

// Blocks of one and two bits an element, and of fp4 with a scale a group of 16. See unpack.hpp.

#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

/// The fp16 at the head of each block of kGroups groups of 32, for each of its groups; zero for
/// groups beyond n.
template <bool kFull, int kBlockBytes, int kGroups>
ALWAYS_INLINE __m256 halves_of_groups(const std::uint8_t* p, int n) {
    alignas(16) std::uint16_t h[8] = {};
    UNROLL
    for (int g = 0; g < 8; ++g)
        if (kFull || g < n) h[g] = read<std::uint16_t>(p + g / kGroups * kBlockBytes);
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(h)));
}

struct Q1_0 {  // 0 and 2, less 1
    static constexpr int kGroup = 32, kOffset = 1, kBlock = 18, kRunBytes = 2 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const auto low = read<std::uint32_t>(p + 2 + 4 * i);
            const std::uint32_t high =
                kFull || i + 4 < n ? read<std::uint32_t>(p + kBlock + 2 + 4 * i) : 0;
            run.q[2 * i] = where_set((low & 0xffffu) | high << 16, 2);
            run.q[2 * i + 1] = where_set(low >> 16 | (high & 0xffff0000u), 2);
        }
        run.scale[0] = halves_of_groups<kFull, kBlock, 4>(p, n);
    }
};

struct Q2_0 {
    static constexpr int kGroup = 32, kOffset = 1, kBlock = 18, kRunBytes = 4 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        UNROLL
        for (int i = 0; i < 8; ++i) {  // four bytes of sixteen elements, and of those 128 on
            const std::uint8_t* at = p + i / 4 * kBlock + 2 + i % 4 * 4;
            const std::uint32_t low = kFull || i / 2 < n ? read<std::uint32_t>(at) : 0;
            const std::uint32_t high =
                kFull || i / 2 + 4 < n ? read<std::uint32_t>(at + 2 * kBlock) : 0;
            const std::uint64_t both = low | std::uint64_t{high} << 32;
            // A byte a dword, its pairs of bits moved apart to bytes.
            __m256i v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(both)));
            v = _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi32(v, 12)),
                                 _mm256_set1_epi32(0x000f000f));
            run.q[i] = _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi32(v, 6)),
                                        _mm256_set1_epi32(0x03030303));
        }
        run.scale[0] = halves_of_groups<kFull, kBlock, 2>(p, n);
    }
};

struct Tq2_0 {
    static constexpr int kGroup = 32, kOffset = 1, kRunBytes = 66;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        crumbs(p, run);
        run.scale[0] = _mm256_set1_ps(read_half(p + 64));
    }
};

/// Three times every byte, modulo 256.
ALWAYS_INLINE __m256i triple(__m256i v) {
    return _mm256_add_epi8(v, _mm256_add_epi8(v, v));
}
ALWAYS_INLINE __m128i triple(__m128i v) {
    return _mm_add_epi8(v, _mm_add_epi8(v, v));
}

/// The leading digit in base 3 of every byte, (3 b) div 256: 0, from 86 on 1, from 171 on 2.
ALWAYS_INLINE __m256i leading_digit(__m256i b) {
    const auto is_from = [b](int bound) {
        return _mm256_cmpeq_epi8(_mm256_max_epu8(b, _mm256_set1_epi8(static_cast<char>(bound))), b);
    };
    return _mm256_abs_epi8(_mm256_add_epi8(is_from(86), is_from(171)));
}

struct Tq1_0 {
    static constexpr int kGroup = 32, kOffset = 1, kRunBytes = 54;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        __m256i a[5];  // digits of the first 32 bytes: groups 0 to 4
        __m128i b[5];  // of the next 16: halves of groups 5, 6 and 7
        a[0] = load_pair(p, p + 16);
        b[0] = load128(p + 32);
        UNROLL
        for (int n = 1; n < 5; ++n) {
            a[n] = triple(a[n - 1]);
            b[n] = triple(b[n - 1]);
        }
        // Four digits of the last four bytes, side by side.
        const __m128i c0 = _mm_set1_epi32(read<std::int32_t>(p + 48)), c1 = triple(c0);
        const __m128i c2 = triple(c1), c3 = triple(c2);
        const __m128i c =
            _mm_blend_epi32(_mm_blend_epi32(c0, c1, 2), _mm_blend_epi32(c2, c3, 8), 12);
        run.q[0] = _mm256_permute2x128_si256(a[0], a[4], 0x20);
        run.q[1] = _mm256_permute2x128_si256(a[0], a[4], 0x31);
        UNROLL
        for (int g = 1; g < 4; ++g) {
            const __m256i second = _mm256_permute4x64_epi64(a[g], 0x0e);
            run.q[2 * g] = _mm256_inserti128_si256(a[g], b[2 * g - 2], 1);
            run.q[2 * g + 1] = _mm256_inserti128_si256(second, g < 3 ? b[2 * g - 1] : c, 1);
        }
        UNROLL
        for (int i = 0; i < 8; ++i) run.q[i] = leading_digit(run.q[i]);
        run.scale[0] = _mm256_set1_ps(read_half(p + 52));
    }
};

/// Eight UE4M3 bytes, halved: (1 + m / 8) * 2^(x - 8), and m * 2^-10 for x = 0; 0x7f is zero.
ALWAYS_INLINE __m256 half_ue4m3(__m128i bytes) {
    const __m256i b = _mm256_cvtepu8_epi32(bytes);
    const __m256i low7 = _mm256_and_si256(b, _mm256_set1_epi32(127));
    const __m256i bias = _mm256_set1_epi32(119 << 23);
    const __m256 normal = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(low7, 20), bias));
    const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(low7), _mm256_set1_ps(0x1p-10f));
    const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), low7);
    const __m256i is_zero = _mm256_cmpeq_epi32(b, _mm256_set1_epi32(127));
    const __m256 value = _mm256_blendv_ps(normal, subnormal, _mm256_castsi256_ps(is_subnormal));
    return _mm256_andnot_ps(_mm256_castsi256_ps(is_zero), value);
}

struct Nvfp4 {  // levels plus 16
    static constexpr int kGroup = 16, kOffset = 16, kBlock = 36, kRunBytes = 4 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        const __m256i shifts = _mm256_setr_epi64x(0, 4, 0, 4);
        UNROLL
        for (int i = 0; i < 8; ++i) {  // eight bytes of group i of 16, and of group i + 8
            const std::uint8_t* at = p + i / 4 * kBlock + 4 + i % 4 * 8;
            const long long low = kFull || i / 2 < n ? read<long long>(at) : 0;
            const long long high = kFull || i / 2 + 4 < n ? read<long long>(at + 2 * kBlock) : 0;
            const __m256i twice = _mm256_setr_epi64x(low, low, high, high);
            run.q[i] = _mm256_and_si256(_mm256_srlv_epi64(twice, shifts), _mm256_set1_epi8(15));
        }
        look_up(run, fp4_levels_plus_16());
        alignas(16) std::uint32_t scales[4] = {};
        UNROLL
        for (int b = 0; b < 4; ++b)
            if (kFull || 2 * b < n) scales[b] = read<std::uint32_t>(p + b * kBlock);
        // In the order of lane16().
        const __m128i lanes =
            _mm_setr_epi32(static_cast<int>(scales[0]), static_cast<int>(scales[2]),
                           static_cast<int>(scales[1]), static_cast<int>(scales[3]));
        run.scale[0] = half_ue4m3(lanes);
        run.scale[1] = half_ue4m3(_mm_unpackhi_epi64(lanes, lanes));
    }
};

}  // namespace
}  // namespace ggml
