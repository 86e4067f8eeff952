#include "probes.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
// g++ 12 warns about its own intrinsics here (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#include <vector>

namespace bench {
namespace {

template <class Body>
void on_lanes(const assay_lanes* lanes, Body body) {
    lanes->run(
        lanes, lanes->width,
        [](void* arg, std::uint32_t i, std::uint32_t) { (*static_cast<Body*>(arg))(i); }, &body);
}

__attribute__((target("avx2"))) std::int64_t sum_of(const std::uint8_t* p, std::size_t bytes) {
    __m256i sum[4] = {};
    for (std::size_t i = 0; i + 128 <= bytes; i += 128)
        for (int j = 0; j < 4; ++j)
            sum[j] = _mm256_add_epi64(
                sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * j)));
    const __m256i all =
        _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return _mm256_extract_epi64(all, 0) + _mm256_extract_epi64(all, 3);
}

constexpr std::int64_t kPeakSteps = 1'000'000;

// Ten independent chains cover the latency of the instruction. Named registers: an array would live
// in memory.
#define TEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)

__attribute__((target("avx512f,avx512vnni"))) int dot_products() {
    const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x04030201);
#define DECLARE(i) __m512i s##i = _mm512_setzero_si512();
#define STEP(i)                             \
    s##i = _mm512_dpbusd_epi32(s##i, a, b); \
    asm volatile("" : "+v"(s##i));
    TEN(DECLARE)
    for (std::int64_t i = 0; i < kPeakSteps; ++i) {
        TEN(STEP)
    }
#define SUM(i) +_mm_cvtsi128_si32(_mm512_castsi512_si128(s##i))
    return TEN(SUM);
#undef DECLARE
#undef STEP
#undef SUM
}

__attribute__((target("avx512f"))) float multiply_adds512() {
    const __m512 a = _mm512_set1_ps(1.5f), b = _mm512_set1_ps(1e-9f);
#define DECLARE(i) __m512 s##i = _mm512_setzero_ps();
#define STEP(i)                         \
    s##i = _mm512_fmadd_ps(a, b, s##i); \
    asm volatile("" : "+v"(s##i));
    TEN(DECLARE)
    for (std::int64_t i = 0; i < kPeakSteps; ++i) {
        TEN(STEP)
    }
#define SUM(i) +_mm512_cvtss_f32(s##i)
    return TEN(SUM);
#undef DECLARE
#undef STEP
#undef SUM
}

__attribute__((target("avx2,fma"))) float multiply_adds256() {
    const __m256 a = _mm256_set1_ps(1.5f), b = _mm256_set1_ps(1e-9f);
#define DECLARE(i) __m256 s##i = _mm256_setzero_ps();
#define STEP(i)                         \
    s##i = _mm256_fmadd_ps(a, b, s##i); \
    asm volatile("" : "+x"(s##i));
    TEN(DECLARE)
    for (std::int64_t i = 0; i < kPeakSteps; ++i) {
        TEN(STEP)
    }
#define SUM(i) +_mm256_cvtss_f32(s##i)
    return TEN(SUM);
#undef DECLARE
#undef STEP
#undef SUM
}

template <class Body>
double best_seconds(int repeats, Body body) {
    double best = 1e9;
    for (int i = 0; i < repeats; ++i) {
        const double start = now_seconds();
        body();
        best = std::min(best, now_seconds() - start);
    }
    return best;
}

}  // namespace

bool is_cpu_time = false;

double now_seconds() {
    timespec t{};
    clock_gettime(is_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double read_bandwidth(const assay_lanes* lanes) {
    static std::vector<std::uint8_t> buffer(std::size_t{256} << 20, 1);
    const std::size_t share = buffer.size() / lanes->width;
    std::vector<std::int64_t> sums(lanes->width * 8);
    const double seconds = best_seconds(5, [&] {
        on_lanes(lanes,
                 [&](std::uint32_t i) { sums[i * 8] = sum_of(buffer.data() + i * share, share); });
    });
    return static_cast<double>(share * lanes->width) / seconds;
}

double int8_peak(const assay_lanes* lanes) {
    if (!__builtin_cpu_supports("avx512vnni")) return 0;
    volatile std::int64_t sink = 0;
    const double seconds =
        best_seconds(3, [&] { on_lanes(lanes, [&](std::uint32_t) { sink = dot_products(); }); });
    return 64.0 * 10 * kPeakSteps * lanes->width / seconds;
}

double f32_peak(const assay_lanes* lanes) {
    volatile float sink = 0;
    const bool is_wide = __builtin_cpu_supports("avx512f");
    const double seconds = best_seconds(3, [&] {
        on_lanes(lanes,
                 [&](std::uint32_t) { sink = is_wide ? multiply_adds512() : multiply_adds256(); });
    });
    return (is_wide ? 16.0 : 8.0) * 10 * kPeakSteps * lanes->width / seconds;
}

}  // namespace bench
