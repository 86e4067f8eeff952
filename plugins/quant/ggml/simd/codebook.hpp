#pragma once

// Looking up codebook entries: what the formats of unpack_iq.hpp share.
//
// Indices are put together in vector registers, go through memory to the loads that look them up,
// and the entries are put side by side; gather instructions are slow on too many processors. That
// is a long way for one run, so a format has it in two steps, and integer.hpp takes the first one
// of a run before the second one of the run before:
//   Ahead             what the first step leaves in memory
//   look_ahead(p, ahead)
//   finish(p, ahead, run)

#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

/// Entries of eight elements: register i holds those of the indices 2i, 2i + 1, 2i + 16, 2i + 17.
/// @param index  of each of the 32
template <class Book, class Index>
ALWAYS_INLINE void look_up_eights(const Book& book, Index index, Run& run) {
    const auto at = [&](int c) { return static_cast<long long>(book.entry[index(c)]); };
    UNROLL
    for (int i = 0; i < 8; ++i)
        run.q[i] = _mm256_setr_epi64x(at(2 * i), at(2 * i + 1), at(2 * i + 16), at(2 * i + 17));
}

/// Four entries of four elements, the first one lowest.
template <class Book, class Index>
ALWAYS_INLINE __m128i four_entries(const Book& book, Index index, int c) {
    const auto* at = book.entry;
#if defined(__AVX512F__)
    // A load that fills one place costs one operation; an insertion from memory costs two.
    const auto load = [&](int i) { return _mm_loadu_si32(&at[index(c + i)]); };
    __m128i out = load(0);
    out = _mm_mask_broadcastd_epi32(out, 2, load(1));
    out = _mm_mask_broadcastd_epi32(out, 4, load(2));
    return _mm_mask_broadcastd_epi32(out, 8, load(3));
#else
    const auto entry = [&](int i) { return static_cast<int>(at[index(c + i)]); };
    return _mm_setr_epi32(entry(0), entry(1), entry(2), entry(3));
#endif
}

/// Entries of four elements: register i holds those of the indices 4i to 4i + 3 and 32 on.
/// @param index  of each of the 64
template <class Book, class Index>
ALWAYS_INLINE void look_up_fours(const Book& book, Index index, Run& run) {
    UNROLL
    for (int i = 0; i < 8; ++i)
        run.q[i] = _mm256_set_m128i(four_entries(book, index, 4 * i + 32),
                                    four_entries(book, index, 4 * i));
}

/// @param signs  a bit an element
ALWAYS_INLINE void store_signs(__m256i signs, Ahead& ahead) {
    const __m128i first = _mm256_castsi256_si128(signs), last = _mm256_extracti128_si256(signs, 1);
    auto* to = reinterpret_cast<__m128i*>(ahead.negative);
    _mm_store_si128(to, _mm_unpacklo_epi16(first, last));
    _mm_store_si128(to + 1, _mm_unpackhi_epi16(first, last));
}

/// Negates the elements whose sign bit is set.
ALWAYS_INLINE void apply_signs(const Ahead& ahead, Run& run) {
    UNROLL
    for (int i = 0; i < 8; ++i) {
#if defined(__AVX512F__)
        run.q[i] = _mm256_mask_sub_epi8(run.q[i], _cvtu32_mask32(ahead.negative[i]),
                                        _mm256_setzero_si256(), run.q[i]);
#else
        const __m256i is_negative = where_set(ahead.negative[i], -1);
        run.q[i] = _mm256_sub_epi8(_mm256_xor_si256(run.q[i], is_negative), is_negative);
#endif
    }
}

/// Seven sign bits a byte to eight: the last one makes the number of set bits even.
ALWAYS_INLINE __m256i even_signs(__m256i seven) {
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i parity = _mm256_xor_si256(_mm256_shuffle_epi8(odd, bits<0>(seven, 15)),
                                            _mm256_shuffle_epi8(odd, bits<4>(seven, 15)));
    return _mm256_or_si256(seven, parity);
}

/// The same from eight dwords of four times seven bits.
ALWAYS_INLINE __m256i even_signs_of_28(__m256i a) {
    const auto part = [a](int shift, int mask) {
        return _mm256_and_si256(_mm256_slli_epi32(a, shift), _mm256_set1_epi32(mask));
    };
    return even_signs(_mm256_or_si256(_mm256_or_si256(part(0, 0x7f), part(1, 0x7f00)),
                                      _mm256_or_si256(part(2, 0x7f0000), part(3, 0x7f000000))));
}

/// d * (2 s + 1) for the dwords' upper four bits.
ALWAYS_INLINE __m256 scales_of_top4(__m256i a, float d) {
    const __m256i odd =
        _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(a, 28), 1), _mm256_set1_epi32(1));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(odd), _mm256_set1_ps(d));
}

/// Eight bytes of nibbles to d * (2 s + 1) a group of 16.
ALWAYS_INLINE void scales_of_nibbles16(const std::uint8_t* p, float d, __m256 out[2]) {
    const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i s =
        _mm_unpacklo_epi8(_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16(both, 4), mask));
    scale_groups16(_mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1)), d, out);
}

/// Shuffles the words 0 to 3 to four times each.
ALWAYS_INLINE __m256i words_four_times() {
    return _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504,
                              0x0706070607060706);
}

/// Sixteen bytes as u16, with upper bits.
ALWAYS_INLINE void store_indices(const std::uint8_t* low, __m256i high, std::uint16_t* out) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out),
                       _mm256_or_si256(_mm256_cvtepu8_epi16(load128(low)), high));
}

/// The first step and the second one at once.
template <class F>
struct TwoSteps {
    template <bool>
    static ALWAYS_INLINE void load(const std::uint8_t* p, int, Run& run) {
        Ahead ahead;
        F::look_ahead(p, ahead);
        stay_in_memory(ahead);
        F::finish(p, ahead, run);
    }
};

}  // namespace
}  // namespace ggml
