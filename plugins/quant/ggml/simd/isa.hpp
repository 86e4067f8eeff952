#pragma once

// The vector operations that the kernels are written with, for the instruction set this file is
// compiled for. Everything in simd/ has internal linkage: each tier is one translation unit with
// its own instruction set, and no function of it may be merged with another tier's by the linker.
// For the same reason no inline function of the standard library is used here.
//
// Every tier computes the same bits: the integer sums are exact, and the f32 operations are the
// same in the same order (a test compares the tiers).

#include "plugins/quant/ggml/kernels.hpp"

#include <cstdint>
#include <immintrin.h>

namespace ggml {
namespace {

#define ALWAYS_INLINE inline __attribute__((always_inline))
// For loops over registers: an array stays in registers only when its indices are constants.
#define UNROLL _Pragma("GCC unroll 16")

// ---- sixteen f32 ----------------------------------------------------------------------------

#if defined(__AVX512F__)

struct F16 {  // sixteen lanes of f32
    __m512 v;
};
ALWAYS_INLINE F16 zero() {
    return {_mm512_setzero_ps()};
}
ALWAYS_INLINE F16 set1(float x) {
    return {_mm512_set1_ps(x)};
}
ALWAYS_INLINE F16 load(const float* p) {
    return {_mm512_loadu_ps(p)};
}
ALWAYS_INLINE void store(float* p, F16 a) {
    _mm512_storeu_ps(p, a.v);
}
ALWAYS_INLINE __mmask16 first(int n) {
    return static_cast<__mmask16>((1u << n) - 1u);
}
/// The first n of sixteen, the rest zero; reads no more than that.
ALWAYS_INLINE F16 load_first(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(first(n), p)};
}
ALWAYS_INLINE void store_first(float* p, F16 a, int n) {
    _mm512_mask_storeu_ps(p, first(n), a.v);
}
ALWAYS_INLINE F16 operator+(F16 a, F16 b) {
    return {_mm512_add_ps(a.v, b.v)};
}
ALWAYS_INLINE F16 operator-(F16 a, F16 b) {
    return {_mm512_sub_ps(a.v, b.v)};
}
ALWAYS_INLINE F16 operator*(F16 a, F16 b) {
    return {_mm512_mul_ps(a.v, b.v)};
}
ALWAYS_INLINE F16 operator/(F16 a, F16 b) {
    return {_mm512_div_ps(a.v, b.v)};
}
/// a * b + c, rounded once.
ALWAYS_INLINE F16 fma(F16 a, F16 b, F16 c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
/// The smaller or larger of bound and x; x when x is NaN.
ALWAYS_INLINE F16 min(F16 bound, F16 x) {
    return {_mm512_min_ps(bound.v, x.v)};
}
ALWAYS_INLINE F16 max(F16 bound, F16 x) {
    return {_mm512_max_ps(bound.v, x.v)};
}
/// a * 2^n, where the low bits of `n_bits` hold n and the result is a normal number.
ALWAYS_INLINE F16 scale_by_power(F16 a, F16 n_bits) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(n_bits.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), n))};
}
ALWAYS_INLINE F16 widen_bf16(const std::uint8_t* p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
ALWAYS_INLINE F16 widen_half(const std::uint8_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
/// Sixteen signed bytes.
ALWAYS_INLINE F16 widen_bytes(__m128i bytes) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
ALWAYS_INLINE __m256 fold(F16 a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

#else

struct F16 {
    __m256 low, high;
};
ALWAYS_INLINE F16 zero() {
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
ALWAYS_INLINE F16 set1(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
ALWAYS_INLINE F16 load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
ALWAYS_INLINE void store(float* p, F16 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
ALWAYS_INLINE F16 load_first(const float* p, int n) {
    alignas(32) float all[16] = {};
    for (int i = 0; i < n; ++i) all[i] = p[i];
    return load(all);
}
ALWAYS_INLINE void store_first(float* p, F16 a, int n) {
    alignas(32) float all[16];
    store(all, a);
    for (int i = 0; i < n; ++i) p[i] = all[i];
}
ALWAYS_INLINE F16 operator+(F16 a, F16 b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
ALWAYS_INLINE F16 operator-(F16 a, F16 b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
ALWAYS_INLINE F16 operator*(F16 a, F16 b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
ALWAYS_INLINE F16 operator/(F16 a, F16 b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
ALWAYS_INLINE F16 fma(F16 a, F16 b, F16 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
ALWAYS_INLINE F16 min(F16 bound, F16 x) {
    return {_mm256_min_ps(bound.low, x.low), _mm256_min_ps(bound.high, x.high)};
}
ALWAYS_INLINE F16 max(F16 bound, F16 x) {
    return {_mm256_max_ps(bound.low, x.low), _mm256_max_ps(bound.high, x.high)};
}
ALWAYS_INLINE __m256 scale_by_power(__m256 a, __m256 n_bits) {
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(n_bits), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
}
ALWAYS_INLINE F16 scale_by_power(F16 a, F16 n_bits) {
    return {scale_by_power(a.low, n_bits.low), scale_by_power(a.high, n_bits.high)};
}
ALWAYS_INLINE __m128i load_bytes(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
ALWAYS_INLINE F16 widen_bf16(const std::uint8_t* p) {
    const __m256i low = _mm256_cvtepu16_epi32(load_bytes(p)),
                  high = _mm256_cvtepu16_epi32(load_bytes(p + 16));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
ALWAYS_INLINE F16 widen_half(const std::uint8_t* p) {
    return {_mm256_cvtph_ps(load_bytes(p)), _mm256_cvtph_ps(load_bytes(p + 16))};
}
ALWAYS_INLINE F16 widen_bytes(__m128i bytes) {
    const __m128i upper = _mm_unpackhi_epi64(bytes, bytes);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper))};
}
ALWAYS_INLINE __m256 fold(F16 a) {
    return _mm256_add_ps(a.low, a.high);
}

#endif

/// ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7)): the one order in which lanes are summed.
ALWAYS_INLINE float sum_lanes(__m256 a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
/// First lane i + lane i + 8, then as above.
ALWAYS_INLINE float sum_lanes(F16 a) {
    return sum_lanes(fold(a));
}

// ---- int8 products within 32 bytes: for one weight row ---------------------------------------

/// sum + sums of four products each: lane i += sum over j < 4 of q[4i + j] * x[4i + j], where x is
/// in -127..127.
/// @param kWide  q is signed; otherwise q is unsigned and at most 63
/// With VNNI, wide q must come as q + 128 (see wide_byte); the caller adds -128 * sum(x).
template <bool kWide>
ALWAYS_INLINE __m256i dot4(__m256i sum, __m256i q, __m256i x) {
#if defined(__AVX512VNNI__)
    return _mm256_dpbusd_epi32(sum, q, x);
#else
    // Pairs fit 16 bits: at most 128 * 127 * 2 = 32512.
    const __m256i pairs = kWide ? _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q))
                                : _mm256_maddubs_epi16(q, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
#if defined(__AVX512VNNI__)
inline constexpr bool kHasVnni = true;
#else
inline constexpr bool kHasVnni = false;
#endif

// ---- int8 products of several rows, side by side ----------------------------------------------

#if defined(__AVX512F__)
using Rows = __m512i;  // one dword a row: four consecutive weights, or a sum
using RowsF = __m512;
inline constexpr int kPanelRows = 16;
ALWAYS_INLINE Rows load_rows(const void* p) {
    return _mm512_load_si512(p);
}
ALWAYS_INLINE Rows broadcast(std::int32_t x) {
    return _mm512_set1_epi32(x);
}
ALWAYS_INLINE RowsF broadcast_f(float x) {
    return _mm512_set1_ps(x);
}
ALWAYS_INLINE Rows add(Rows a, Rows b) {
    return _mm512_add_epi32(a, b);
}
ALWAYS_INLINE RowsF to_float(Rows a) {
    return _mm512_cvtepi32_ps(a);
}
ALWAYS_INLINE RowsF load_rows_f(const float* p) {
    return _mm512_load_ps(p);
}
ALWAYS_INLINE void store_rows_f(float* p, RowsF a) {
    _mm512_storeu_ps(p, a);
}
ALWAYS_INLINE RowsF zero_rows() {
    return _mm512_setzero_ps();
}
ALWAYS_INLINE RowsF add_f(RowsF a, RowsF b) {
    return _mm512_add_ps(a, b);
}
ALWAYS_INLINE RowsF mul_f(RowsF a, RowsF b) {
    return _mm512_mul_ps(a, b);
}
ALWAYS_INLINE RowsF fma_f(RowsF a, RowsF b, RowsF c) {
    return _mm512_fmadd_ps(a, b, c);
}
ALWAYS_INLINE RowsF fnma_f(RowsF a, RowsF b, RowsF c) {
    return _mm512_fnmadd_ps(a, b, c);
}
ALWAYS_INLINE Rows pairs_unsigned(Rows w, Rows x) {
    return _mm512_maddubs_epi16(w, x);
}
ALWAYS_INLINE Rows pairs_signed(Rows w, Rows x) {
    const Rows signed_x =
        _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
}
ALWAYS_INLINE Rows add16(Rows a, Rows b) {
    return _mm512_add_epi16(a, b);
}
ALWAYS_INLINE Rows add_pairs(Rows a) {
    return _mm512_madd_epi16(a, _mm512_set1_epi16(1));
}
#else
using Rows = __m256i;
using RowsF = __m256;
inline constexpr int kPanelRows = 8;
ALWAYS_INLINE Rows load_rows(const void* p) {
    return _mm256_load_si256(static_cast<const __m256i*>(p));
}
ALWAYS_INLINE Rows broadcast(std::int32_t x) {
    return _mm256_set1_epi32(x);
}
ALWAYS_INLINE RowsF broadcast_f(float x) {
    return _mm256_set1_ps(x);
}
ALWAYS_INLINE Rows add(Rows a, Rows b) {
    return _mm256_add_epi32(a, b);
}
ALWAYS_INLINE RowsF to_float(Rows a) {
    return _mm256_cvtepi32_ps(a);
}
ALWAYS_INLINE RowsF load_rows_f(const float* p) {
    return _mm256_load_ps(p);
}
ALWAYS_INLINE void store_rows_f(float* p, RowsF a) {
    _mm256_storeu_ps(p, a);
}
ALWAYS_INLINE RowsF zero_rows() {
    return _mm256_setzero_ps();
}
ALWAYS_INLINE RowsF add_f(RowsF a, RowsF b) {
    return _mm256_add_ps(a, b);
}
ALWAYS_INLINE RowsF mul_f(RowsF a, RowsF b) {
    return _mm256_mul_ps(a, b);
}
ALWAYS_INLINE RowsF fma_f(RowsF a, RowsF b, RowsF c) {
    return _mm256_fmadd_ps(a, b, c);
}
ALWAYS_INLINE RowsF fnma_f(RowsF a, RowsF b, RowsF c) {
    return _mm256_fnmadd_ps(a, b, c);
}
ALWAYS_INLINE Rows pairs_unsigned(Rows w, Rows x) {
    return _mm256_maddubs_epi16(w, x);
}
ALWAYS_INLINE Rows pairs_signed(Rows w, Rows x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
ALWAYS_INLINE Rows add16(Rows a, Rows b) {
    return _mm256_add_epi16(a, b);
}
ALWAYS_INLINE Rows add_pairs(Rows a) {
    return _mm256_madd_epi16(a, _mm256_set1_epi16(1));
}
#endif

}  // namespace
}  // namespace ggml
