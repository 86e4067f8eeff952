#pragma once

// Blocks of 32 elements. See unpack.hpp.

#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

/// The fifth bits of the same, a u32 a block.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE void load_fifth_bits(const std::uint8_t* p, int n, Run& run) {
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t low = kFull || i < n ? read<std::uint32_t>(p + kBlockBytes * i) : 0;
        const std::uint32_t high =
            kFull || i + 4 < n ? read<std::uint32_t>(p + kBlockBytes * (i + 4)) : 0;
        run.q[2 * i] = _mm256_or_si256(run.q[2 * i], where_set((low & 0xffffu) | high << 16, 16));
        run.q[2 * i + 1] =
            _mm256_or_si256(run.q[2 * i + 1], where_set(low >> 16 | (high & 0xffff0000u), 16));
    }
}

ALWAYS_INLINE __m256 negated(__m256 v) {
    return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}

struct Q4_0 {
    static constexpr int kGroup = 32, kOffset = 8, kBlock = 18, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 2, n, run);
        run.scale[0] = halves<kFull, kBlock>(p, n);
    }
};

struct Q4_1 {  // y = q d + m, so the min is -m
    static constexpr int kGroup = 32, kOffset = 0, kBlock = 20, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 4, n, run);
        run.scale[0] = halves<kFull, kBlock>(p, n);
        run.min[0] = negated(halves<kFull, kBlock>(p + 2, n));
    }
};

struct Q5_0 {
    static constexpr int kGroup = 32, kOffset = 16, kBlock = 22, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 6, n, run);
        load_fifth_bits<kFull, kBlock>(p + 2, n, run);
        run.scale[0] = halves<kFull, kBlock>(p, n);
    }
};

struct Q5_1 {
    static constexpr int kGroup = 32, kOffset = 0, kBlock = 24, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 8, n, run);
        load_fifth_bits<kFull, kBlock>(p + 4, n, run);
        run.scale[0] = halves<kFull, kBlock>(p, n);
        run.min[0] = negated(halves<kFull, kBlock>(p + 2, n));
    }
};

/// Bytes at kAt of a block: q8_0 and q8_1.
template <int kBlockBytes, int kAt>
struct Q8 {
    static constexpr int kGroup = 32, kOffset = 0, kBlock = kBlockBytes, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        UNROLL
        for (int i = 0; i < 4; ++i) {
            run.q[2 * i] = load_groups<kFull, kBlock>(p + kAt, i, n);
            run.q[2 * i + 1] = load_groups<kFull, kBlock>(p + kAt + 16, i, n);
        }
        run.scale[0] = halves<kFull, kBlock>(p, n);
    }
};
using Q8_0 = Q8<34, 2>;
using Q8_1 = Q8<36, 4>;

struct Iq4Nl {
    static constexpr int kGroup = 32, kOffset = 0, kBlock = 18, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 2, n, run);
        look_up(run, iq4_levels());
        run.scale[0] = halves<kFull, kBlock>(p, n);
    }
};

struct Mxfp4 {  // levels plus 16
    static constexpr int kGroup = 32, kOffset = 16, kBlock = 17, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        load_nibbles<kFull, kBlock>(p + 1, n, run);
        look_up(run, fp4_levels_plus_16());
        std::uint64_t exponents = 0;
        UNROLL
        for (int i = 0; i < 8; ++i)
            if (kFull || i < n) exponents |= std::uint64_t{p[kBlock * i]} << (8 * i);
        // 2^(x - 128); x = 0 and 1 are subnormal.
        const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(exponents));
        const __m256i x = _mm256_cvtepu8_epi32(bytes);
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, _mm256_set1_epi32(1)), 23);
        const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), x);
        const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), x);
        run.scale[0] = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, is_subnormal));
        if constexpr (!kFull) {  // exponent 0 is a scale too
            const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            const __m256i exists = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
            run.scale[0] = _mm256_and_ps(run.scale[0], _mm256_castsi256_ps(exists));
        }
    }
};

}  // namespace
}  // namespace ggml
