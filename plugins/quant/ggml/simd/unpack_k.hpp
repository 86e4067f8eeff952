#pragma once

// Blocks of 256 elements with linear levels, and iq4_xs. See unpack.hpp.

#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

/// 128 bytes of nibbles: groups 2j and 2j + 1 in the low and high nibbles of 32 bytes (q4_k, q5_k).
ALWAYS_INLINE void k_nibbles(const std::uint8_t* p, Run& run) {
    UNROLL
    for (int j = 0; j < 2; ++j) {
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const std::uint8_t* at = p + 32 * j + 16 * half;
            const __m256i raw = load_pair(at, at + 64);
            run.q[4 * j + half] = bits<0>(raw, 15);
            run.q[4 * j + 2 + half] = bits<4>(raw, 15);
        }
    }
}

/// The 12 bytes of q4_k and q5_k: 6-bit scales and mins of eight groups.
ALWAYS_INLINE void k_scales(const std::uint8_t* p, Run& run) {
    const auto s0 = read<std::uint32_t>(p + 4), s1 = read<std::uint32_t>(p + 8);
    const auto s2 = read<std::uint32_t>(p + 12);
    const std::uint32_t scale_low = s0 & 0x3f3f3f3fu, min_low = s1 & 0x3f3f3f3fu;
    const std::uint32_t scale_high = (s2 & 0x0f0f0f0fu) | ((s0 >> 2) & 0x30303030u);
    const std::uint32_t min_high = ((s2 >> 4) & 0x0f0f0f0fu) | ((s1 >> 2) & 0x30303030u);
    run.scale[0] = scale_groups32(scale_low | std::uint64_t{scale_high} << 32, read_half(p));
    run.min[0] = scale_groups32(min_low | std::uint64_t{min_high} << 32, read_half(p + 2));
}

struct Q4K {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 144;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        k_nibbles(p + 16, run);
        k_scales(p, run);
    }
};

struct Q5K {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 176;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        k_nibbles(p + 48, run);
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const __m256i high = load_twice(p + 16 + 16 * half);
            __m256i* q = run.q + half;
            q[0] = _mm256_or_si256(q[0], move_bit<0, 4>(high));
            q[2] = _mm256_or_si256(q[2], move_bit<1, 4>(high));
            q[4] = _mm256_or_si256(q[4], move_bit<2, 4>(high));
            q[6] = _mm256_or_si256(q[6], move_bit<3, 4>(high));
        }
        k_scales(p, run);
    }
};

struct Q6K {
    static constexpr int kGroup = 16, kOffset = 32, kRunBytes = 210;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        const __m256i mask = _mm256_set1_epi8(0x30);
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const std::uint8_t* low = p + 16 * half;
            const __m256i low0 = load_pair(low, low + 64), low1 = load_pair(low + 32, low + 96);
            const __m256i high = load_pair(low + 128, low + 160);
            const __m256i h0 = _mm256_and_si256(_mm256_slli_epi16(high, 4), mask);
            const __m256i h1 = _mm256_and_si256(_mm256_slli_epi16(high, 2), mask);
            const __m256i h3 = _mm256_and_si256(_mm256_srli_epi16(high, 2), mask);
            __m256i* q = run.q + half;
            q[0] = _mm256_or_si256(bits<0>(low0, 15), h0);
            q[2] = _mm256_or_si256(bits<0>(low1, 15), h1);
            q[4] = _mm256_or_si256(bits<4>(low0, 15), _mm256_and_si256(high, mask));
            q[6] = _mm256_or_si256(bits<4>(low1, 15), h3);
        }
        scale_groups16(load128(p + 192), read_half(p + 208), run.scale);
    }
};

struct Q8K {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 292;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        UNROLL
        for (int i = 0; i < 8; ++i) run.q[i] = load_pair(p + 4 + 16 * i, p + 132 + 16 * i);
        run.scale[0] = _mm256_set1_ps(read<float>(p));
    }
};

struct Q2K {
    static constexpr int kGroup = 16, kOffset = 0, kRunBytes = 84;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        crumbs(p + 16, run);
        const __m128i both = load128(p), nibble = _mm_set1_epi8(15);
        scale_groups16(_mm_and_si128(both, nibble), read_half(p + 80), run.scale);
        const __m128i upper = _mm_and_si128(_mm_srli_epi16(both, 4), nibble);
        scale_groups16(upper, read_half(p + 82), run.min);
    }
};

struct Q3K {
    static constexpr int kGroup = 16, kOffset = 4, kRunBytes = 110;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        crumbs(p + 32, run);
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const __m256i high = load_twice(p + 16 * half);
            __m256i* q = run.q + half;
            q[0] = _mm256_or_si256(q[0], move_bit<0, 2>(high));
            q[2] = _mm256_or_si256(q[2], move_bit<1, 2>(high));
            q[4] = _mm256_or_si256(q[4], move_bit<2, 2>(high));
            q[6] = _mm256_or_si256(q[6], move_bit<3, 2>(high));
        }
        // Bits 4 and 5 of the scales of groups 0..3 are bits 0 and 1 of the last four bytes, those
        // of groups 4..7 are bits 2 and 3, and so on.
        constexpr std::uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fu, kPairs = 0x3030303030303030u;
        const auto low = read<std::uint64_t>(p + 96);
        const std::uint64_t top = read<std::uint32_t>(p + 104);
        const std::uint64_t top_low = (top << 4 & 0xffffffffu) | top << 34;
        const std::uint64_t top_high = top | (top >> 2) << 32;
        const std::uint64_t first8 = (low & kNibbles) | (top_low & kPairs);
        const std::uint64_t last8 = ((low >> 4) & kNibbles) | (top_high & kPairs);
        const __m128i biased =
            _mm_set_epi64x(static_cast<long long>(last8), static_cast<long long>(first8));
        scale_groups16(_mm_sub_epi8(biased, _mm_set1_epi8(32)), read_half(p + 108), run.scale);
    }
};

struct Iq4Xs {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 136;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        load_nibbles<true, 16>(p + 8, 8, run);
        look_up(run, iq4_levels());
        const std::uint32_t high = read<std::uint16_t>(p + 2), low = read<std::uint32_t>(p + 4);
        std::uint64_t scales = 0;
        UNROLL
        for (int g = 0; g < 8; ++g) {
            const std::uint32_t s = ((low >> (4 * g)) & 15u) | ((high >> (2 * g)) & 3u) << 4;
            scales |= std::uint64_t{(s - 32u) & 255u} << (8 * g);
        }
        run.scale[0] = scale_groups32(scales, read_half(p));
    }
};

}  // namespace
}  // namespace ggml
