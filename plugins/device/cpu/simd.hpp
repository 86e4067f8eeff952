#pragma once

// One vector type, as wide as the instruction set this file is compiled for, and the few functions
// that the kernels need on it. All arithmetic is plain IEEE f32 without fused multiply-add, so a
// result does not depend on the width. C headers only; everything has internal linkage.

#include <stdint.h>
#include <string.h>

namespace cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kWidth)));
typedef int32_t VecI __attribute__((vector_size(4 * kWidth)));
typedef uint32_t VecU __attribute__((vector_size(4 * kWidth)));

#define CPU_INLINE inline __attribute__((always_inline))

CPU_INLINE Vec splat(float x) {
    return Vec{} + x;
}

CPU_INLINE Vec load(const float* p) {
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
CPU_INLINE void store(float* p, Vec v) {
    memcpy(p, &v, sizeof v);
}

/// The first n < kWidth lanes; the rest are zero.
CPU_INLINE Vec load_part(const float* p, int64_t n) {
    float lane[kWidth] = {};
    memcpy(lane, p, static_cast<size_t>(n) * sizeof(float));
    return load(lane);
}
CPU_INLINE void store_part(float* p, Vec v, int64_t n) {
    float lane[kWidth];
    store(lane, v);
    memcpy(p, lane, static_cast<size_t>(n) * sizeof(float));
}

CPU_INLINE VecU bits(Vec v) {
    return reinterpret_cast<VecU>(v);
}
CPU_INLINE Vec from_bits(VecU v) {
    return reinterpret_cast<Vec>(v);
}

/// x where the lane of `mask` is all ones, y where it is zero.
CPU_INLINE Vec select(VecI mask, Vec x, Vec y) {
    const VecU m = reinterpret_cast<VecU>(mask);
    return from_bits((bits(x) & m) | (bits(y) & ~m));
}

/// NaN stays NaN.
CPU_INLINE Vec clamp(Vec x, float low, float high) {
    const Vec l = splat(low), h = splat(high);
    x = select(x < l, l, x);
    return select(x > h, h, x);
}

#define CPU_SIGN 0x80000000u
#if defined(__AVX512F__)
#define CPU_SWAPPED 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#define CPU_TWICE 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7
#define CPU_EVEN_SIGN                                                                          \
    CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, \
        CPU_SIGN, 0
#elif defined(__AVX2__)
#define CPU_SWAPPED 1, 0, 3, 2, 5, 4, 7, 6
#define CPU_TWICE 0, 0, 1, 1, 2, 2, 3, 3
#define CPU_EVEN_SIGN CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0, CPU_SIGN, 0
#else
#define CPU_SWAPPED 1, 0, 3, 2
#define CPU_TWICE 0, 0, 1, 1
#define CPU_EVEN_SIGN CPU_SIGN, 0, CPU_SIGN, 0
#endif

/// (x1, x0, x3, x2, ...)
CPU_INLINE Vec swap_pairs(Vec x) {
    return __builtin_shufflevector(x, x, CPU_SWAPPED);
}

/// (p[0], p[0], p[1], p[1], ...), from kWidth / 2 floats.
CPU_INLINE Vec load_twice(const float* p) {
    typedef float Half __attribute__((vector_size(2 * kWidth)));
    Half x;
    memcpy(&x, p, sizeof x);
    return __builtin_shufflevector(x, x, CPU_TWICE);
}

/// The sign of the even lanes turned.
CPU_INLINE Vec negate_even(Vec x) {
    constexpr VecU kSign = {CPU_EVEN_SIGN};
    return from_bits(bits(x) ^ kSign);
}

/// All ones where x is neither NaN nor infinite.
CPU_INLINE VecI is_finite(Vec x) {
    return (bits(x) & 0x7f800000u) != 0x7f800000u;
}

struct Reduced {  // x = n ln 2 + r
    Vec r;
    VecI n;
};

/// Splits x, |x| < 128, with |r| <= ln 2 / 2. ln 2 is taken in two parts, of which the first has 15
/// significant bits, so that n times it is exact.
CPU_INLINE Reduced reduce_ln2(Vec x) {
    constexpr float kLog2E = 1.44269504f, kMagic = 12582912.f;  // 1.5 * 2^23: rounds to an integer
    constexpr float kLn2High = 0.693145751953125f, kLn2Low = 1.42860682e-6f;
    const Vec shifted = x * kLog2E + kMagic;
    const Vec n = shifted - kMagic;
    const Vec r = (x - n * kLn2High) - n * kLn2Low;
    return {r, reinterpret_cast<VecI>(bits(shifted) - 0x4b400000u)};  // the bits of kMagic
}

/// e^r - 1 for |r| <= ln 2 / 2: the Taylor series to r^7, whose remainder is below 6e-9 of e^r.
CPU_INLINE Vec expm1_series(Vec r) {
    Vec q = r * (1.f / 5040) + 1.f / 720;
    q = q * r + 1.f / 120;
    q = q * r + 1.f / 24;
    q = q * r + 1.f / 6;
    q = q * r + 0.5f;
    return r + (r * r) * q;
}

/// 2^n for n in [-126, 127].
CPU_INLINE Vec exp2i(VecI n) {
    return from_bits((reinterpret_cast<VecU>(n) + 127u) << 23);
}

/// e^x. At most 2 ulp from the exact value; +-inf, NaN and subnormal results as IEEE has them.
CPU_INLINE Vec exp(Vec x) {
    const Reduced s = reduce_ln2(clamp(x, -105.f, 89.f));
    const VecI half =
        s.n >> 1;  // two factors, since 2^n alone leaves the range of f32 at both ends
    return (1.f + expm1_series(s.r)) * exp2i(half) * exp2i(s.n - half);
}

CPU_INLINE Vec sigmoid(Vec x) {
    return 1.f / (1.f + exp(-x));
}

/// tanh x = (e^2x - 1) / (e^2x + 1), with e^2x - 1 formed without cancellation.
CPU_INLINE Vec tanh(Vec x) {
    const Vec clamped = clamp(x, -10.f, 10.f);  // tanh is +-1 in f32 from 9.02 on
    const Reduced s = reduce_ln2(clamped + clamped);
    const Vec power = exp2i(s.n);
    const Vec expm1 = expm1_series(s.r) * power + (power - 1.f);
    return expm1 / (expm1 + 2.f);
}

/// Sixteen running sums whatever the vector width, so that the order of additions is the same
/// everywhere.
struct Sum16 {
    static constexpr int kParts = 16 / kWidth;
    Vec part[kParts] = {};

    CPU_INLINE void to(float lane[16]) const { memcpy(lane, part, 16 * sizeof(float)); }
};

/// sum over i < n of f(i), where f(i) gives the kWidth terms from i on, and f(i, count) the first
/// `count` terms with zeros after. f32 within 256 terms, f64 across.
template <class F, class Part>
CPU_INLINE double sum(int64_t n, F f, Part f_part) {
    double total[16] = {};
    int64_t i = 0;
    while (i < n) {
        Sum16 acc;
        const int64_t end = n - i < 256 ? n : i + 256;
        for (; i + 16 <= end; i += 16)
            for (int p = 0; p < Sum16::kParts; ++p) acc.part[p] += f(i + int64_t{p} * kWidth);
        for (int p = 0; p < Sum16::kParts && i < end; ++p) {
            if (end - i >= kWidth) {
                acc.part[p] += f(i);
                i += kWidth;
            } else {
                acc.part[p] += f_part(i, end - i);
                i = end;
            }
        }
        float lane[16];
        acc.to(lane);
        for (int l = 0; l < 16; ++l) total[l] += static_cast<double>(lane[l]);
    }
    double all = 0;
    for (int l = 0; l < 16; ++l) all += total[l];
    return all;
}

/// out[i] = f(x[i]) and out[i] = f(x[i], y[i]), i < n.
template <class F>
CPU_INLINE void map(const float* x, float* out, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) store(out + i, f(load(x + i)));
    if (i < n) store_part(out + i, f(load_part(x + i, n - i)), n - i);
}
template <class F>
CPU_INLINE void map(const float* x, const float* y, float* out, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) store(out + i, f(load(x + i), load(y + i)));
    if (i < n) store_part(out + i, f(load_part(x + i, n - i), load_part(y + i, n - i)), n - i);
}

}  // namespace
}  // namespace cpu
