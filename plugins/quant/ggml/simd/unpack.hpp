#pragma once

// Stored blocks to 8-bit integers in vector registers, a run of 256 elements at a time: what the
// integer kernels read. A weight is scale * (q - kOffset) - min, with one scale (and min) a group.
//
// A format is a struct with
//   kGroup    elements that share a scale: 32 or 16
//   kHasMin   whether there is a min
//   kWide     q is signed, the whole byte (kOffset is 0); otherwise q is unsigned and at most 63
//   kOffset   a power of two, or 0
//   kRunBytes stored bytes of 256 elements
//   load<kFull>(p, num_groups)  one run; with kFull false only the first num_groups groups of 32
//             exist, the rest is zero in q and scale. Only formats with blocks of 32 see that.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

struct Run {
    __m256i q[8];     // [256] in the order of k
    __m256 scale[2];  // groups of 32: [0] in order; groups of 16: in the order of lane16()
    __m256 min[2];
};

template <class T>
ALWAYS_INLINE T read(const std::uint8_t* p) {
    T value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
}
ALWAYS_INLINE __m256i load256(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
ALWAYS_INLINE __m128i load16b(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
ALWAYS_INLINE float read_half(const std::uint8_t* p) {
    return _cvtsh_ss(read<std::uint16_t>(p));
}

/// Sixteen bytes of nibbles as 32 values: low nibbles first.
ALWAYS_INLINE __m256i split_nibbles(const std::uint8_t* p) {
    const __m128i raw = load16b(p);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(raw), _mm_srli_epi16(raw, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/// Bit i of `bits` as value `one` in byte i.
ALWAYS_INLINE __m256i spread_bits(std::uint32_t bits, char one) {
    const __m256i shuffle = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                              0x0101010101010101, 0x0000000000000000);
    const __m256i select = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), shuffle);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(one));
}

/// (v >> shift) & mask, by bytes.
template <int kShift>
ALWAYS_INLINE __m256i bits(__m256i v, char mask) {
    return _mm256_and_si256(_mm256_srli_epi16(v, kShift), _mm256_set1_epi8(mask));
}

/// The fp16 at the head of each of eight blocks, or of the first n.
template <bool kFull, int kBlockBytes>
ALWAYS_INLINE __m256 halves(const std::uint8_t* p, int n) {
    alignas(16) std::uint16_t h[8] = {};
    for (int i = 0; i < (kFull ? 8 : n); ++i) h[i] = read<std::uint16_t>(p + i * kBlockBytes);
    if constexpr (kFull) {
        return _mm256_cvtph_ps(_mm_setr_epi16(static_cast<short>(h[0]), static_cast<short>(h[1]),
                                              static_cast<short>(h[2]), static_cast<short>(h[3]),
                                              static_cast<short>(h[4]), static_cast<short>(h[5]),
                                              static_cast<short>(h[6]), static_cast<short>(h[7])));
    }
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(h)));
}

/// Sixteen signed bytes, one a group of 16, as f32 in the order of lane16(), times d.
ALWAYS_INLINE void scale_groups16(__m128i by_group, float d, __m256 out[2]) {
    const __m128i lanes = _mm_shuffle_epi8(
        by_group, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m256 ds = _mm256_set1_ps(d);
    out[0] = _mm256_mul_ps(ds, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(lanes)));
    out[1] = _mm256_mul_ps(
        ds, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(lanes, lanes))));
}

/// Eight bytes, one a group of 32, as f32 times d.
ALWAYS_INLINE __m256 scale_groups32(std::uint64_t by_group, float d) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<long long>(by_group)));
    return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(wide));
}

// ---- blocks of 32 ---------------------------------------------------------------------------

/// Runs `body(i)` for the groups that exist and zeroes the others.
template <bool kFull, class Body>
ALWAYS_INLINE void each_group(Run& run, int n, Body body) {
    for (int i = 0; i < 8; ++i) run.q[i] = kFull || i < n ? body(i) : _mm256_setzero_si256();
}

struct Q4_0 {
    static constexpr int kGroup = 32, kOffset = 8, kRunBytes = 8 * 18;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) { return split_nibbles(p + 18 * i + 2); });
        run.scale[0] = halves<kFull, 18>(p, n);
    }
};

struct Q4_1 {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 8 * 20;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) { return split_nibbles(p + 20 * i + 4); });
        run.scale[0] = halves<kFull, 20>(p, n);
        run.min[0] =
            _mm256_sub_ps(_mm256_setzero_ps(), halves<kFull, 20>(p + 2, n));  // y = q d + m
    }
};

struct Q5_0 {
    static constexpr int kGroup = 32, kOffset = 16, kRunBytes = 8 * 22;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) {
            const std::uint8_t* b = p + 22 * i;
            return _mm256_or_si256(split_nibbles(b + 6),
                                   spread_bits(read<std::uint32_t>(b + 2), 16));
        });
        run.scale[0] = halves<kFull, 22>(p, n);
    }
};

struct Q5_1 {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 8 * 24;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) {
            const std::uint8_t* b = p + 24 * i;
            return _mm256_or_si256(split_nibbles(b + 8),
                                   spread_bits(read<std::uint32_t>(b + 4), 16));
        });
        run.scale[0] = halves<kFull, 24>(p, n);
        run.min[0] = _mm256_sub_ps(_mm256_setzero_ps(), halves<kFull, 24>(p + 2, n));
    }
};

struct Q8_0 {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 8 * 34;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) { return load256(p + 34 * i + 2); });
        run.scale[0] = halves<kFull, 34>(p, n);
    }
};

ALWAYS_INLINE __m256i iq4_levels(__m256i nibbles) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13,
                                                  25, 38, 53, 69, 89, 113)),
        nibbles);
}

struct Iq4Nl {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 8 * 18;
    static constexpr bool kHasMin = false, kWide = true;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        each_group<kFull>(run, n, [&](int i) { return iq4_levels(split_nibbles(p + 18 * i + 2)); });
        run.scale[0] = halves<kFull, 18>(p, n);
    }
};

struct Mxfp4 {
    static constexpr int kGroup = 32, kOffset = 16, kRunBytes = 8 * 17;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool kFull>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int n, Run& run) {
        const __m256i levels = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
        each_group<kFull>(run, n, [&](int i) {
            return _mm256_shuffle_epi8(levels, split_nibbles(p + 17 * i + 1));
        });
        std::uint64_t exponents = 0;
        for (int i = 0; i < (kFull ? 8 : n); ++i) exponents |= std::uint64_t{p[17 * i]} << (8 * i);
        const __m256i x =
            _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(exponents)));
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

/// The 12 bytes of q4_k and q5_k: 6-bit scales and mins of eight groups.
ALWAYS_INLINE void k_scales(const std::uint8_t* p, Run& run) {
    const auto s0 = read<std::uint32_t>(p + 4), s1 = read<std::uint32_t>(p + 8),
               s2 = read<std::uint32_t>(p + 12);
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
        for (int i = 0; i < 4; ++i) {
            const __m256i raw = load256(p + 16 + 32 * i);
            run.q[2 * i] = bits<0>(raw, 15);
            run.q[2 * i + 1] = bits<4>(raw, 15);
        }
        k_scales(p, run);
    }
};

struct Q5K {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 176;
    static constexpr bool kHasMin = true, kWide = false;
    template <int kI>
    static ALWAYS_INLINE void load_pair(const std::uint8_t* p, __m256i high, Run& run) {
        const __m256i raw = load256(p + 48 + 32 * kI);
        // Bit 2i of the high byte to bit 4, and bit 2i + 1.
        const __m256i even =
            kI < 2 ? _mm256_slli_epi16(high, 4 - 2 * kI) : _mm256_srli_epi16(high, 2 * kI - 4);
        const __m256i odd =
            kI < 2 ? _mm256_slli_epi16(high, 3 - 2 * kI) : _mm256_srli_epi16(high, 2 * kI - 3);
        const __m256i fifth = _mm256_set1_epi8(16);
        run.q[2 * kI] = _mm256_or_si256(bits<0>(raw, 15), _mm256_and_si256(even, fifth));
        run.q[2 * kI + 1] = _mm256_or_si256(bits<4>(raw, 15), _mm256_and_si256(odd, fifth));
    }
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        const __m256i high = load256(p + 16);
        load_pair<0>(p, high, run);
        load_pair<1>(p, high, run);
        load_pair<2>(p, high, run);
        load_pair<3>(p, high, run);
        k_scales(p, run);
    }
};

struct Q6K {
    static constexpr int kGroup = 16, kOffset = 32, kRunBytes = 210;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        const __m256i mask = _mm256_set1_epi8(0x30);
        for (int h = 0; h < 2; ++h) {
            const __m256i low0 = load256(p + 64 * h), low1 = load256(p + 64 * h + 32);
            const __m256i high = load256(p + 128 + 32 * h);
            __m256i* q = run.q + 4 * h;
            q[0] = _mm256_or_si256(bits<0>(low0, 15),
                                   _mm256_and_si256(_mm256_slli_epi16(high, 4), mask));
            q[1] = _mm256_or_si256(bits<0>(low1, 15),
                                   _mm256_and_si256(_mm256_slli_epi16(high, 2), mask));
            q[2] = _mm256_or_si256(bits<4>(low0, 15), _mm256_and_si256(high, mask));
            q[3] = _mm256_or_si256(bits<4>(low1, 15),
                                   _mm256_and_si256(_mm256_srli_epi16(high, 2), mask));
        }
        scale_groups16(load16b(p + 192), read_half(p + 208), run.scale);
    }
};

struct Q2K {
    static constexpr int kGroup = 16, kOffset = 0, kRunBytes = 84;
    static constexpr bool kHasMin = true, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        for (int h = 0; h < 2; ++h) {
            const __m256i raw = load256(p + 16 + 32 * h);
            run.q[4 * h] = bits<0>(raw, 3);
            run.q[4 * h + 1] = bits<2>(raw, 3);
            run.q[4 * h + 2] = bits<4>(raw, 3);
            run.q[4 * h + 3] = bits<6>(raw, 3);
        }
        const __m128i both = load16b(p), nibble = _mm_set1_epi8(15);
        scale_groups16(_mm_and_si128(both, nibble), read_half(p + 80), run.scale);
        scale_groups16(_mm_and_si128(_mm_srli_epi16(both, 4), nibble), read_half(p + 82), run.min);
    }
};

struct Q3K {
    static constexpr int kGroup = 16, kOffset = 4, kRunBytes = 110;
    static constexpr bool kHasMin = false, kWide = false;
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        const __m256i high = load256(p), four = _mm256_set1_epi8(4);
        for (int h = 0; h < 2; ++h) {
            const __m256i raw = load256(p + 32 + 32 * h);
            run.q[4 * h] = bits<0>(raw, 3);
            run.q[4 * h + 1] = bits<2>(raw, 3);
            run.q[4 * h + 2] = bits<4>(raw, 3);
            run.q[4 * h + 3] = bits<6>(raw, 3);
        }
        for (int i = 0; i < 8; ++i) {  // bit i of the high byte to bit 2
            const __m256i moved =
                i < 2 ? _mm256_slli_epi16(high, 2 - i) : _mm256_srli_epi16(high, i - 2);
            run.q[i] = _mm256_or_si256(run.q[i], _mm256_and_si256(moved, four));
        }
        const auto low = read<std::uint64_t>(p + 96);
        const auto top = read<std::uint32_t>(p + 104);
        constexpr std::uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fu, kPairs = 0x3030303030303030u;
        // Bits 4 and 5 of groups 0..3 are bits 0 and 1 of the last four bytes, of 4..7 bits 2 and
        // 3, ...
        const std::uint64_t top_low = (std::uint64_t{top} << 4 & 0xffffffffu) | std::uint64_t{top}
                                                                                    << 34;
        const std::uint64_t top_high = top | std::uint64_t{top >> 2} << 32;
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
        for (int i = 0; i < 8; ++i) run.q[i] = iq4_levels(split_nibbles(p + 8 + 16 * i));
        std::uint64_t scales = 0;
        const std::uint32_t high = read<std::uint16_t>(p + 2), low = read<std::uint32_t>(p + 4);
        for (int g = 0; g < 8; ++g) {
            const std::uint32_t s = ((low >> (4 * g)) & 15u) | ((high >> (2 * g)) & 3u) << 4;
            scales |= std::uint64_t{(s - 32u) & 255u} << (8 * g);
        }
        run.scale[0] = scale_groups32(scales, read_half(p));
    }
};

}  // namespace
}  // namespace ggml
