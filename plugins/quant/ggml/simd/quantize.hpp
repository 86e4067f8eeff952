#pragma once

// Activations to 8 bits, one scale per group of 32, and what that leaves likewise. See
// ggml::QuantizedX.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

struct GroupOfX {
    float scale;
    std::int32_t sum[2];  // of q, by halves of 16
};

/// Below this the inverse of the scale is no longer a finite f32; such a group becomes zero, an
/// error of less than 1e-36 an element.
inline constexpr float kSmallestPeak = 0x1p-118f;

ALWAYS_INLINE __m256i abs_bits(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

ALWAYS_INLINE std::int32_t sum_halves(__m128i sums) {
    const __m128i two = _mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums));
    return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}

/// @param x  [32]
/// @param q  [2] receive sixteen each of x / scale to nearest even, in -127..127
ALWAYS_INLINE GroupOfX quantize_group(const float* x, __m128i* const q[2]) {
    __m256 v[4];
    for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + 8 * i);
    // As integers, magnitudes are ordered finite < infinite < NaN, so that nothing gets lost.
    const __m256i peak8 = _mm256_max_epi32(_mm256_max_epi32(abs_bits(v[0]), abs_bits(v[1])),
                                           _mm256_max_epi32(abs_bits(v[2]), abs_bits(v[3])));
    __m128i peak4 =
        _mm_max_epi32(_mm256_castsi256_si128(peak8), _mm256_extracti128_si256(peak8, 1));
    peak4 = _mm_max_epi32(peak4, _mm_unpackhi_epi64(peak4, peak4));
    peak4 = _mm_max_epi32(peak4, _mm_shuffle_epi32(peak4, 1));
    const float peak = _mm_cvtss_f32(_mm_castsi128_ps(peak4));
    const bool is_finite = _mm_cvtsi128_si32(peak4) < 0x7f800000;

    GroupOfX group{};
    if (!is_finite || peak < kSmallestPeak) {
        _mm_store_si128(q[0], _mm_setzero_si128());
        _mm_store_si128(q[1], _mm_setzero_si128());
        group.scale = is_finite ? 0.0f : __builtin_nanf("");
        return group;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / peak);
    __m256i n[4];
    for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i low = _mm256_add_epi32(n[0], n[1]), high = _mm256_add_epi32(n[2], n[3]);
    group.sum[0] =
        sum_halves(_mm_add_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    group.sum[1] =
        sum_halves(_mm_add_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    const __m256i in_order =
        _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm_store_si128(q[0], _mm256_castsi256_si128(in_order));
    _mm_store_si128(q[1], _mm256_extracti128_si256(in_order, 1));
    group.scale = peak / 127.0f;
    return group;
}

/// rest[i] = x[i] - scale * q[i], [32]
ALWAYS_INLINE void take_rest(const float* x, float scale, __m128i* const q[2], float* rest) {
    const __m256 s = _mm256_set1_ps(scale);
    for (int i = 0; i < 4; ++i) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(
            reinterpret_cast<const std::uint8_t*>(q[i / 2]) + 8 * (i % 2)));
        const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        _mm256_storeu_ps(rest + 8 * i, _mm256_fnmadd_ps(value, s, _mm256_loadu_ps(x + 8 * i)));
    }
}

/// One run of one plane.
/// @param num_cols  of x that there are; a multiple of 32, maybe beyond the run
/// @param rest      null, or [256]: receives what the rounding left
ALWAYS_INLINE void quantize_run(const float* x, std::int64_t num_cols, const QuantizedX& out,
                                std::uint8_t* record, float* rest) {
    Groups32 g32{};
    Groups16 g16{};
    for (int g = 0; g < 8; ++g) {
        const std::int64_t k = 32 * g;
        __m128i* const halves[2] = {reinterpret_cast<__m128i*>(record + offset_in_run(g, 0)),
                                    reinterpret_cast<__m128i*>(record + offset_in_run(g, 1))};
        if (k >= num_cols) {
            _mm_store_si128(halves[0], _mm_setzero_si128());
            _mm_store_si128(halves[1], _mm_setzero_si128());
            continue;
        }
        const GroupOfX group = quantize_group(x + k, halves);
        if (rest != nullptr) take_rest(x + k, group.scale, halves, rest + k);
        const std::int32_t sum = group.sum[0] + group.sum[1];
        g32.scale[g] = group.scale;
        g32.sum[g] = group.scale * static_cast<float>(sum);
        g32.neg128_sum[g] = -128 * sum;
        for (int half = 0; half < 2; ++half) {
            const int lane = lane16(2 * g + half);
            g16.scale[lane] = group.scale;
            g16.sum[lane] = group.scale * static_cast<float>(group.sum[half]);
            g16.neg128_sum[lane] = -128 * group.sum[half];
        }
    }
    if (out.at32 != 0) __builtin_memcpy(record + out.at32, &g32, sizeof g32);
    if (out.at16 != 0) __builtin_memcpy(record + out.at16, &g16, sizeof g16);
}

void quantize_x(const QuantizeArgs& args) {
    const QuantizedX& out = *args.out;
    std::uint8_t* record = out.data + args.row * out.num_planes * out.row_bytes();
    for (std::int64_t run = 0; run < out.num_runs; ++run, record += out.run_bytes) {
        const std::int64_t at = run * kRunCols;
        alignas(32) float rest[kRunCols];
        const bool has_rest = out.num_planes > 1;
        quantize_run(args.x + at, args.k - at, out, record, has_rest ? rest : nullptr);
        if (has_rest) quantize_run(rest, args.k - at, out, record + out.row_bytes(), nullptr);
    }
}

}  // namespace
}  // namespace ggml
