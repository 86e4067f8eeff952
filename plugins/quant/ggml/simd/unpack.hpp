#pragma once

// Stored blocks to 8-bit integers in vector registers, a run of 256 elements at a time: what the
// integer kernels read. A weight is scale * (q - kOffset) - min, with one scale (and min) a group.
//
// Order within a run: group i of 32 and group i + 4 share registers, since every format of 256
// elements stores its two halves alike. q[2i] holds the first sixteen of group i and the first
// sixteen of group i + 4, q[2i + 1] the second ones. Quantized x is stored in this order too.
//
// A format is a struct with
//   kGroup    elements that share a scale: 32 or 16
//   kHasMin   whether there is a min
//   kWide     q is signed, the whole byte (kOffset is 0); otherwise q is unsigned and at most 63
//   kOffset   a power of two, or 0
//   kRunBytes stored bytes of 256 elements
//   load<kFull>(p, num_groups, run)  one run; with kFull false only the first num_groups groups of
//   32
//             exist, the rest is zero in q and scale. Only formats with blocks of 32 see that.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

struct Run {
    __m256i q[8];
    __m256 scale[2];  // groups of 32: [0] in order; groups of 16: in the order of lane16()
    __m256 min[2];
};

template <class T>
ALWAYS_INLINE T read(const std::uint8_t* p) {
    T value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
}
ALWAYS_INLINE __m128i load128(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
ALWAYS_INLINE float read_half(const std::uint8_t* p) {
    return _cvtsh_ss(read<std::uint16_t>(p));
}

/// Sixteen bytes at `low`, then sixteen at `high`.
ALWAYS_INLINE __m256i load_pair(const std::uint8_t* low, const std::uint8_t* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(low)), load128(high), 1);
}

/// Sixteen bytes twice, the second time with every byte's upper four bits moved down (what was
/// there before is in the upper four, to be masked away).
ALWAYS_INLINE __m256i load_twice(const std::uint8_t* p) {
    const __m256i twice = _mm256_broadcastsi128_si256(load128(p));
    return _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
}

/// (v >> shift) & mask, by bytes.
template <int kShift>
ALWAYS_INLINE __m256i bits(__m256i v, char mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, kShift), _mm256_set1_epi8(mask));
}

/// Bit kFrom of every byte to bit kTo, all others zero.
template <int kFrom, int kTo>
ALWAYS_INLINE __m256i move_bit(__m256i v) {
    const __m256i moved =
        kFrom <= kTo ? _mm256_slli_epi16(v, kTo - kFrom) : _mm256_srli_epi16(v, kFrom - kTo);
    return _mm256_and_si256(moved, _mm256_set1_epi8(1 << kTo));
}

/// q with 16 added to byte i where bit i is set.
ALWAYS_INLINE __m256i add_fifth_bit(__m256i q, std::uint32_t bits32) {
    const __m256i fifth = _mm256_set1_epi8(16);
#if defined(__AVX512F__)
    return _mm256_or_si256(q, _mm256_maskz_mov_epi8(_cvtu32_mask32(bits32), fifth));
#else
    const __m256i shuffle = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                              0x0101010101010101, 0x0000000000000000);
    const __m256i select = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits32)), shuffle);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);
    return _mm256_or_si256(q, _mm256_and_si256(is_set, fifth));
#endif
}

/// The fp16 at the head of each of eight blocks, or of the first n.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE __m256 halves(const std::uint8_t* p, int n) {
    alignas(16) std::uint16_t h[8] = {};
    UNROLL
    for (int i = 0; i < 8; ++i)
        if (kFull || i < n) h[i] = read<std::uint16_t>(p + i * kBlockBytes);
    const auto at = [&](int i) { return static_cast<short>(h[i]); };
    return _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
}

/// Sixteen signed bytes, one a group of 16, as f32 in the order of lane16(), times d.
ALWAYS_INLINE void scale_groups16(__m128i by_group, float d, __m256 out[2]) {
    const __m128i lanes = _mm_shuffle_epi32(by_group, _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i upper = _mm_unpackhi_epi64(lanes, lanes);
    const __m256 ds = _mm256_set1_ps(d);
    out[0] = _mm256_mul_ps(ds, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(lanes)));
    out[1] = _mm256_mul_ps(ds, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper)));
}

/// Eight bytes, one a group of 32, as f32 times d.
ALWAYS_INLINE __m256 scale_groups32(std::uint64_t by_group, float d) {
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(by_group));
    return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

// ---- blocks of 32 ---------------------------------------------------------------------------

/// Sixteen bytes of group i and of group i + 4, zero where there is no such group.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE __m256i load_groups(const std::uint8_t* p, int i, int n) {
    if (kFull || i + 4 < n) return load_pair(p + kBlockBytes * i, p + kBlockBytes * (i + 4));
    return i < n ? _mm256_inserti128_si256(_mm256_setzero_si256(), load128(p + kBlockBytes * i), 0)
                 : _mm256_setzero_si256();
}

/// Sixteen bytes of nibbles a block, the low ones first.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE void load_nibbles(const std::uint8_t* p, int n, Run& run) {
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const __m256i raw = load_groups<kFull, kBlockBytes>(p, i, n);
        run.q[2 * i] = bits<0>(raw, 15);
        run.q[2 * i + 1] = bits<4>(raw, 15);
    }
}

/// The fifth bits of the same, a u32 a block.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE void load_fifth_bits(const std::uint8_t* p, int n, Run& run) {
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t low = kFull || i < n ? read<std::uint32_t>(p + kBlockBytes * i) : 0;
        const std::uint32_t high =
            kFull || i + 4 < n ? read<std::uint32_t>(p + kBlockBytes * (i + 4)) : 0;
        run.q[2 * i] = add_fifth_bit(run.q[2 * i], (low & 0xffffu) | high << 16);
        run.q[2 * i + 1] = add_fifth_bit(run.q[2 * i + 1], low >> 16 | (high & 0xffff0000u));
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

struct Q8_0 {
    static constexpr int kGroup = 32, kOffset = 0, kBlock = 34, kRunBytes = 8 * kBlock;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        UNROLL
        for (int i = 0; i < 4; ++i) {
            run.q[2 * i] = load_groups<kFull, kBlock>(p + 2, i, n);
            run.q[2 * i + 1] = load_groups<kFull, kBlock>(p + 18, i, n);
        }
        run.scale[0] = halves<kFull, kBlock>(p, n);
    }
};

/// Nibbles to the 16 levels of a non-linear format.
ALWAYS_INLINE void look_up(Run& run, __m128i levels) {
    UNROLL
    for (int i = 0; i < 8; ++i)
        run.q[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), run.q[i]);
}

ALWAYS_INLINE __m128i iq4_levels() {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

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
        look_up(run, _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
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

// ---- blocks of 256 --------------------------------------------------------------------------

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

/// 64 bytes of 2-bit values: byte = 32 * (e div 128) + e mod 32, shift by the group (q2_k, q3_k).
ALWAYS_INLINE void crumbs(const std::uint8_t* p, Run& run) {
    UNROLL
    for (int half = 0; half < 2; ++half) {
        const __m256i raw = load_pair(p + 16 * half, p + 32 + 16 * half);
        run.q[half] = bits<0>(raw, 3);
        run.q[2 + half] = bits<2>(raw, 3);
        run.q[4 + half] = bits<4>(raw, 3);
        run.q[6 + half] = bits<6>(raw, 3);
    }
}

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
