// V: 16 floats in one register. Included inside the tier's namespace; AVX-512 F, BW, DQ, VL.

constexpr int kRows = 4;     // rows of a block of scores: 4 rows x 4 keys in 16 registers
constexpr int kSumRows = 4;  // rows x vectors of a block of weighted values
constexpr int kSumVectors = 4;

using V = __m512;

inline V load(const float* p) {
    return _mm512_loadu_ps(p);
}
inline void store(float* p, V a) {
    _mm512_storeu_ps(p, a);
}
inline V set1(float x) {
    return _mm512_set1_ps(x);
}
using Part = V;
constexpr int kParts = 1;
inline Part zero_part() {
    return _mm512_setzero_ps();
}
inline Part load_part(const float* p) {
    return _mm512_loadu_ps(p);
}
inline Part fma_part(Part a, Part b, Part c) {
    return _mm512_fmadd_ps(a, b, c);
}
inline V join(const Part* p) {
    return p[0];
}

inline V add(V a, V b) {
    return _mm512_add_ps(a, b);
}
inline V sub(V a, V b) {
    return _mm512_sub_ps(a, b);
}
inline V mul(V a, V b) {
    return _mm512_mul_ps(a, b);
}
inline V div(V a, V b) {
    return _mm512_div_ps(a, b);
}
inline V fma(V a, V b, V c) {
    return _mm512_fmadd_ps(a, b, c);
}
inline V max(V a, V b) {
    return _mm512_max_ps(a, b);
}  // b where one is NaN
inline V zero_below(V x, float bound, V y) {
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set1(bound), _CMP_LT_OQ),
                              _mm512_setzero_ps());
}
inline V magnitude(V x) {
    return _mm512_abs_ps(x);
}
inline V with_sign(V x, V sign) {
    return _mm512_or_ps(x, _mm512_and_ps(sign, set1(-0.0F)));
}
/// 2^n for the integer n in the low bits of t.
inline V power_of_two(V t) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                                _mm512_set1_epi32(0x3f800000)));
}

inline __m256 low(V a) {
    return _mm512_castps512_ps256(a);
}
inline __m256 high(V a) {
    return _mm512_extractf32x8_ps(a, 1);
}

/// Entries i, i + 8, i + 4 and i + 12 first, then neighbours two apart, then one apart.
inline float reduce_add(V a) {
    const __m256 b = _mm256_add_ps(low(a), high(a));
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float reduce_max(V a) {
    const __m256 b = _mm256_max_ps(low(a), high(a));
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}
/// out[i] = reduce_add(a[i]), four at once.
inline void reduce_add4(const V* a, float* out) {
    const V ab =
        add(_mm512_shuffle_f32x4(a[0], a[1], 0x44), _mm512_shuffle_f32x4(a[0], a[1], 0xee));
    const V cd =
        add(_mm512_shuffle_f32x4(a[2], a[3], 0x44), _mm512_shuffle_f32x4(a[2], a[3], 0xee));
    const V four = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    const V two = add(four, _mm512_permute_ps(four, 0x4e));
    const V one = add(two, _mm512_permute_ps(two, 0xb1));
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, one)));
}

inline V load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline V load_bf16(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
inline void store_f16(std::uint16_t* p, V a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
