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

constexpr std::int64_t kPeakSteps = 4'000'000;

// Ten independent chains cover the latency of the instruction.
__attribute__((target("avx512f,avx512vnni"))) std::int64_t dot_products() {
    __m512i sum[10] = {};
    const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x04030201);
    for (std::int64_t i = 0; i < kPeakSteps; ++i)
        for (__m512i& s : sum) {
            s = _mm512_dpbusd_epi32(s, a, b);
            asm volatile("" : "+v"(s));
        }
    __m512i all = sum[0];
    for (const __m512i& s : sum) all = _mm512_add_epi32(all, s);
    return _mm512_reduce_add_epi32(all);
}

__attribute__((target("avx512f"))) float multiply_adds512() {
    __m512 sum[10] = {};
    const __m512 a = _mm512_set1_ps(1.5f), b = _mm512_set1_ps(1e-9f);
    for (std::int64_t i = 0; i < kPeakSteps; ++i)
        for (__m512& s : sum) {
            s = _mm512_fmadd_ps(a, b, s);
            asm volatile("" : "+v"(s));
        }
    __m512 all = sum[0];
    for (const __m512& s : sum) all = _mm512_add_ps(all, s);
    return _mm512_reduce_add_ps(all);
}

__attribute__((target("avx2,fma"))) float multiply_adds256() {
    __m256 sum[10] = {};
    const __m256 a = _mm256_set1_ps(1.5f), b = _mm256_set1_ps(1e-9f);
    for (std::int64_t i = 0; i < kPeakSteps; ++i)
        for (__m256& s : sum) {
            s = _mm256_fmadd_ps(a, b, s);
            asm volatile("" : "+x"(s));
        }
    return _mm256_cvtss_f32(sum[0]);
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
