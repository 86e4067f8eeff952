// V: 16 floats in two registers. Included inside the tier's namespace; AVX2, FMA, F16C.

constexpr int kRows = 3;  // 3 rows x 4 keys in 12 registers of 16
constexpr int kSumRows = 2;
constexpr int kSumVectors = 2;

struct V {
    __m256 a, b;
};

inline V load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, V x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline V set1(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
using Part = __m256;
constexpr int kParts = 2;
inline Part zero_part() {
    return _mm256_setzero_ps();
}
inline Part load_part(const float* p) {
    return _mm256_loadu_ps(p);
}
inline Part fma_part(Part a, Part b, Part c) {
    return _mm256_fmadd_ps(a, b, c);
}
inline V join(const Part* p) {
    return {p[0], p[1]};
}

inline V add(V x, V y) {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline V sub(V x, V y) {
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline V mul(V x, V y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline V div(V x, V y) {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline V fma(V x, V y, V z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline V max(V x, V y) {
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline V zero_below(V x, float bound, V y) {
    const __m256 limit = _mm256_set1_ps(bound);
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.a, limit, _CMP_LT_OQ), y.a),
            _mm256_andnot_ps(_mm256_cmp_ps(x.b, limit, _CMP_LT_OQ), y.b)};
}
inline V magnitude(V x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline V with_sign(V x, V s) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_or_ps(x.a, _mm256_and_ps(s.a, sign)),
            _mm256_or_ps(x.b, _mm256_and_ps(s.b, sign))};
}
inline __m256 power_of_two(__m256 t) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                                _mm256_set1_epi32(0x3f800000)));
}
/// 2^n for the integer n in the low bits of t.
inline V power_of_two(V t) {
    return {power_of_two(t.a), power_of_two(t.b)};
}

/// Entries i, i + 8, i + 4 and i + 12 first, then neighbours two apart, then one apart.
inline float reduce_add(V x) {
    const __m256 b = _mm256_add_ps(x.a, x.b);
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float reduce_max(V x) {
    const __m256 b = _mm256_max_ps(x.a, x.b);
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}
/// out[i] = reduce_add(x[i]), four at once.
inline void reduce_add4(const V* x, float* out) {
    const __m256 a = _mm256_add_ps(x[0].a, x[0].b), b = _mm256_add_ps(x[1].a, x[1].b);
    const __m256 c = _mm256_add_ps(x[2].a, x[2].b), d = _mm256_add_ps(x[3].a, x[3].b);
    const __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    const __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    const __m256 two =
        _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    const __m256 one =
        _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));
    // The lower half holds the sums of a and c, the upper those of b and d.
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
}

inline V load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline __m256 widen_bf16(const std::uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline V load_bf16(const std::uint16_t* p) {
    return {widen_bf16(p), widen_bf16(p + 8)};
}
inline void store_f16(std::uint16_t* p, V x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                     _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
