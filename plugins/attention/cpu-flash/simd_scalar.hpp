// V: 16 floats in an array. Included inside the tier's namespace; any processor. Slow, and there
// for two reasons: it runs everywhere, and it says in plain code what the vector tiers do.

constexpr int kRows = 1;
constexpr int kSumRows = 1;
constexpr int kSumVectors = 1;

struct V {
    float f[kVector];
};

template <class Op>
inline V each(Op op) {
    V out;
    for (int i = 0; i < kVector; ++i) out.f[i] = op(i);
    return out;
}

inline V load(const float* p) {
    return each([&](int i) { return p[i]; });
}
inline void store(float* p, const V& a) {
    for (int i = 0; i < kVector; ++i) p[i] = a.f[i];
}
inline V set1(float x) {
    return each([&](int) { return x; });
}
inline V add(const V& a, const V& b) {
    return each([&](int i) { return a.f[i] + b.f[i]; });
}
inline V sub(const V& a, const V& b) {
    return each([&](int i) { return a.f[i] - b.f[i]; });
}
inline V mul(const V& a, const V& b) {
    return each([&](int i) { return a.f[i] * b.f[i]; });
}
inline V div(const V& a, const V& b) {
    return each([&](int i) { return a.f[i] / b.f[i]; });
}
inline V fma(const V& a, const V& b, const V& c) {
    return each([&](int i) { return __builtin_fmaf(a.f[i], b.f[i], c.f[i]); });
}
inline V max(const V& a, const V& b) {
    return each([&](int i) { return a.f[i] > b.f[i] ? a.f[i] : b.f[i]; });
}
inline V zero_below(const V& x, float bound, const V& y) {
    return each([&](int i) { return x.f[i] < bound ? 0.0F : y.f[i]; });
}
inline V magnitude(const V& x) {
    return each([&](int i) { return __builtin_fabsf(x.f[i]); });
}
inline V with_sign(const V& x, const V& sign) {
    return each([&](int i) { return __builtin_copysignf(x.f[i], sign.f[i]); });
}
using Part = V;
constexpr int kParts = 1;
inline Part zero_part() {
    return set1(0.0F);
}
inline Part load_part(const float* p) {
    return load(p);
}
inline Part fma_part(const Part& a, const Part& b, const Part& c) {
    return fma(a, b, c);
}
inline V join(const Part* p) {
    return p[0];
}

/// 2^n for the integer n in the low bits of t.
inline V power_of_two(const V& t) {
    return each([&](int i) {
        const std::uint32_t n = __builtin_bit_cast(std::uint32_t, t.f[i]);
        return __builtin_bit_cast(float, (n << 23) + 0x3f800000U);
    });
}

/// Entries i, i + 8, i + 4 and i + 12 first, then neighbours two apart, then one apart.
template <class Op>
inline float reduce(V a, Op op) {
    for (int half = kVector / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) a.f[i] = op(a.f[i], a.f[i + half]);
    return a.f[0];
}
inline float reduce_add(const V& a) {
    return reduce(a, [](float x, float y) { return x + y; });
}
inline float reduce_max(const V& a) {
    return reduce(a, [](float x, float y) { return x > y ? x : y; });
}
inline void reduce_add4(const V* a, float* out) {
    for (int i = 0; i < 4; ++i) out[i] = reduce_add(a[i]);
}

inline V load_f16(const std::uint16_t* p) {
    return each([&](int i) { return f16_to_f32(p[i]); });
}
inline V load_bf16(const std::uint16_t* p) {
    return each([&](int i) { return bf16_to_f32(p[i]); });
}
inline void store_f16(std::uint16_t* p, const V& a) {
    for (int i = 0; i < kVector; ++i) p[i] = f32_to_f16(a.f[i]);
}
