#pragma once

// Blocks of 256 elements whose levels stand in codebooks. See unpack.hpp and codebook.hpp.

#include "plugins/quant/ggml/simd/codebook.hpp"

namespace ggml {
namespace {

// y = d (s + 1/2) / 4 level = d / 8 (2 s + 1) level

struct Iq2Xxs : TwoSteps<Iq2Xxs> {  // four indices and a dword of signs and scale, eight times
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 66;
    static constexpr bool kHasMin = false, kWide = true;
    static ALWAYS_INLINE __m256i dwords(const std::uint8_t* p) {
        const __m256 first = _mm256_castsi256_ps(load_pair(p + 2, p + 34));
        const __m256 last = _mm256_castsi256_ps(load_pair(p + 18, p + 50));
        return _mm256_castps_si256(_mm256_shuffle_ps(first, last, 0xdd));
    }
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        store_signs(even_signs_of_28(dwords(p)), ahead);
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_eights(
            kIq2XxsCodebook, [p](int c) { return p[2 + c / 4 * 8 + c % 4]; }, run);
        apply_signs(ahead, run);
        run.scale[0] = scales_of_top4(dwords(p), 0.125f * read_half(p));
    }
};

struct Iq2Xs : TwoSteps<Iq2Xs> {
    static constexpr int kGroup = 16, kOffset = 0, kRunBytes = 74;
    static constexpr bool kHasMin = false, kWide = true;
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        const __m256i first = load_pair(p + 2, p + 18), last = load_pair(p + 34, p + 50);
        const __m256i seven =
            _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(last, 9));
        store_signs(even_signs(_mm256_permute4x64_epi64(seven, 0xd8)), ahead);
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        const auto index = [p](int c) { return read<std::uint16_t>(p + 2 + 2 * c) & 511; };
        look_up_eights(kIq2XsCodebook, index, run);
        apply_signs(ahead, run);
        scales_of_nibbles16(p + 66, 0.125f * read_half(p), run.scale);
    }
};

struct Iq2S : TwoSteps<Iq2S> {
    static constexpr int kGroup = 16, kOffset = 0, kRunBytes = 82;
    static constexpr bool kHasMin = false, kWide = true;
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        // Two upper bits an index, four pairs a byte: every byte times four words, moved to bit 8.
        const __m256i factor = _mm256_set1_epi64x(0x0004001000400100);
        const __m256i spread = _mm256_setr_epi64x(static_cast<long long>(0x8000800080008000u),
                                                  static_cast<long long>(0x8001800180018001u),
                                                  static_cast<long long>(0x8002800280028002u),
                                                  static_cast<long long>(0x8003800380038003u));
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const __m256i four = _mm256_set1_epi32(read<std::int32_t>(p + 66 + 4 * half));
            const __m256i high = _mm256_mullo_epi16(_mm256_shuffle_epi8(four, spread), factor);
            store_indices(p + 2 + 16 * half, _mm256_and_si256(high, _mm256_set1_epi16(0x300)),
                          ahead.index + 16 * half);
        }
        store_signs(load_pair(p + 34, p + 50), ahead);
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_eights(
            kIq2SCodebook, [&](int c) { return ahead.index[c]; }, run);
        apply_signs(ahead, run);
        scales_of_nibbles16(p + 74, 0.125f * read_half(p), run.scale);
    }
};

struct Iq3Xxs : TwoSteps<Iq3Xxs> {  // y = d (s + 1/2) / 2 level
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 98;
    static constexpr bool kHasMin = false, kWide = true;
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        store_signs(even_signs_of_28(load_pair(p + 66, p + 82)), ahead);
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_fours(
            kIq3XxsCodebook, [p](int c) { return p[2 + c]; }, run);
        apply_signs(ahead, run);
        run.scale[0] = scales_of_top4(load_pair(p + 66, p + 82), 0.25f * read_half(p));
    }
};

struct Iq3S : TwoSteps<Iq3S> {
    static constexpr int kGroup = 32, kOffset = 0, kRunBytes = 110;
    static constexpr bool kHasMin = false, kWide = true;
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        UNROLL
        for (int i = 0; i < 4; ++i) {  // the ninth bits of sixteen indices
            const __m256i bits16 = _mm256_set1_epi16(read<std::int16_t>(p + 66 + 2 * i));
            const __m256i select = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024,
                                                     2048, 4096, 8192, 16384, -32768);
            const __m256i is_set = _mm256_cmpeq_epi16(_mm256_and_si256(bits16, select), select);
            store_indices(p + 2 + 16 * i, _mm256_and_si256(is_set, _mm256_set1_epi16(256)),
                          ahead.index + 16 * i);
        }
        store_signs(load_pair(p + 74, p + 90), ahead);
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_fours(
            kIq3SCodebook, [&](int c) { return ahead.index[c]; }, run);
        apply_signs(ahead, run);
        // A nibble a group, to a dword each.
        const __m256i four = _mm256_set1_epi32(read<std::int32_t>(p + 106));
        const __m256i s = _mm256_srlv_epi32(four, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        run.scale[0] = scales_of_top4(_mm256_slli_epi32(s, 28), read_half(p));
    }
};

// iq1: entries are eight times the level; with eight times delta, and 16 for the offset, they are 7
// to 25. y = d (2 s + 1) (level + delta)

struct Iq1S : TwoSteps<Iq1S> {
    static constexpr int kGroup = 32, kOffset = 16, kRunBytes = 50;
    static constexpr bool kHasMin = false, kWide = false;
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        const __m128i h = load128(p + 34);  // a word a group
        UNROLL
        for (int half = 0; half < 2; ++half) {
            // Each word four times; its fields of three bits to bit 8, the fourth by a shift right.
            const __m256i spread =
                _mm256_add_epi8(words_four_times(), _mm256_set1_epi8(static_cast<char>(8 * half)));
            const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(h), spread);
            const __m256i left = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0000000400200100));
            const __m256i high = _mm256_blend_epi16(left, _mm256_srli_epi16(words, 1), 0x88);
            store_indices(p + 2 + 16 * half, _mm256_and_si256(high, _mm256_set1_epi16(0x700)),
                          ahead.index + 16 * half);
        }
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_eights(
            kIq1Codebook, [&](int c) { return ahead.index[c]; }, run);
        const __m128i h = load128(p + 34);
        const __m128i delta = _mm_or_si128(_mm_srai_epi16(h, 15), _mm_set1_epi16(1));
        const __m128i shift = _mm_add_epi16(delta, _mm_set1_epi16(16));
        const __m256i by_group = _mm256_broadcastsi128_si256(_mm_packs_epi16(shift, shift));
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const auto low = static_cast<char>(i), high = static_cast<char>(i + 4);
            const __m256i both = _mm256_shuffle_epi8(
                by_group, _mm256_set_m128i(_mm_set1_epi8(high), _mm_set1_epi8(low)));
            run.q[2 * i] = _mm256_add_epi8(run.q[2 * i], both);
            run.q[2 * i + 1] = _mm256_add_epi8(run.q[2 * i + 1], both);
        }
        const __m256i s = _mm256_cvtepu16_epi32(_mm_srli_epi16(_mm_slli_epi16(h, 1), 13));
        run.scale[0] = scales_of_top4(_mm256_slli_epi32(s, 28), 0.125f * read_half(p));
    }
};

struct Iq1M : TwoSteps<Iq1M> {
    static constexpr int kGroup = 16, kOffset = 16, kRunBytes = 56;
    static constexpr bool kHasMin = false, kWide = false;
    /// A nibble per 8 elements: three upper bits of the index, the sign of delta.
    static ALWAYS_INLINE __m256i nibbles(const std::uint8_t* p) {
        const __m128i both = load128(p + 32), mask = _mm_set1_epi8(15);
        const __m128i low = _mm_and_si128(both, mask);
        const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
        return _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
    }
    static ALWAYS_INLINE void look_ahead(const std::uint8_t* p, Ahead& ahead) {
        const __m256i all = nibbles(p);
        const __m128i parts[2] = {_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)};
        UNROLL
        for (int half = 0; half < 2; ++half) {
            const __m256i words = _mm256_slli_epi16(_mm256_cvtepu8_epi16(parts[half]), 8);
            store_indices(p + 16 * half, _mm256_and_si256(words, _mm256_set1_epi16(0x700)),
                          ahead.index + 16 * half);
        }
    }
    static ALWAYS_INLINE void finish(const std::uint8_t* p, const Ahead& ahead, Run& run) {
        look_up_eights(
            kIq1Codebook, [&](int c) { return ahead.index[c]; }, run);
        const __m256i shift = _mm256_sub_epi8(_mm256_set1_epi8(17), bits<2>(nibbles(p), 2));
        UNROLL
        for (int i = 0; i < 8; ++i) {
            const __m256i pick = _mm256_broadcastsi128_si256(
                _mm_set_epi64x(0x0101010101010101 * (2 * i + 1), 0x0101010101010101 * (2 * i)));
            run.q[i] = _mm256_add_epi8(run.q[i], _mm256_shuffle_epi8(shift, pick));
        }
        // Four words: three bits a group of 16 four times, and four bits of d.
        const auto words = read<std::uint64_t>(p + 48);
        const auto d = static_cast<std::uint16_t>((words >> 12 & 0xfu) | (words >> 24 & 0xf0u) |
                                                  (words >> 36 & 0xf00u) | (words >> 48 & 0xf000u));
        const __m256i fours = _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<long long>(words)),
                                                  words_four_times());
        const __m256i moved = _mm256_mullo_epi16(fours, _mm256_set1_epi64x(0x0001000800400200));
        const __m256i s = _mm256_and_si256(_mm256_srli_epi16(moved, 8), _mm256_set1_epi16(14));
        const __m128i twice =
            _mm_packus_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        scale_groups16(_mm_or_si128(twice, _mm_set1_epi8(1)), 0.125f * _cvtsh_ss(d), run.scale);
    }
};

}  // namespace
}  // namespace ggml
