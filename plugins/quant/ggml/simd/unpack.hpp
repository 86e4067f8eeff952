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
//             32 exist, the scale of the rest is zero. Only formats with smaller blocks see that.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

struct Run {
    __m256i q[8];
    __m256 scale[2];  // groups of 32: [0] in order; groups of 16: in the order of lane16()
    __m256 min[2];
};

/// What the first step of a format in two steps leaves in memory: see codebook.hpp.
struct Ahead {
    alignas(64) std::uint16_t index[64];  // entries of eight elements: the first 32
    std::uint32_t negative[8];            // of register i, a bit an element
};

/// Keeps the compiler from taking the elements out of the registers that an array was stored from,
/// which costs more than loads do.
template <class Array>
ALWAYS_INLINE void stay_in_memory(Array& array) {
    asm("" : "+m"(array));
}

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

/// `value` in byte i where bit i is set, else zero.
ALWAYS_INLINE __m256i where_set(std::uint32_t bits32, char value) {
#if defined(__AVX512F__)
    return _mm256_maskz_set1_epi8(_cvtu32_mask32(bits32), value);
#else
    const __m256i shuffle = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                              0x0101010101010101, 0x0000000000000000);
    const __m256i select = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits32)), shuffle);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(value));
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

/// Nibbles to the 16 levels of a non-linear format.
ALWAYS_INLINE void look_up(Run& run, __m128i levels) {
    UNROLL
    for (int i = 0; i < 8; ++i)
        run.q[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), run.q[i]);
}

/// Twice the levels of E2M1, plus 16.
ALWAYS_INLINE __m128i fp4_levels_plus_16() {
    return _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
}

ALWAYS_INLINE __m128i iq4_levels() {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

/// 64 bytes of 2-bit values: byte = 32 * (e div 128) + e mod 32, shift by the group (q2_k, q3_k,
/// tq2_0).
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

}  // namespace
}  // namespace ggml
