#pragma once

// Products of 8-bit weights and 8-bit activations, exact within a group, f32 between groups.
//
// The arithmetic, the same for one row and one token as for any tile: with L = 256 / kGroup lanes,
// lane l takes the groups l, l + L, ... in order,
//     lane = fma(isum, scale_w * scale_x, lane);  with a min: lane = fma(-min, scale_x * sum_x,
//     lane)
// where isum is the integer sum over the group, and the lanes are added at the end in the order of
// sum_lanes(). The lanes are what makes both shapes possible: with one row they sit side by side in
// a register, with a panel of rows they are separate registers.

#include "plugins/quant/ggml/simd/unpack.hpp"

#include <cstddef>

namespace ggml {
namespace {

/// What the integer sum of a group lacks because q is stored with an offset: kOffset * -sum(x), as
/// a right shift of -128 * sum(x); -1 when there is nothing to add.
template <class F>
constexpr int offset_shift() {
    if (F::kWide) return kHasVnni ? 0 : -1;
    if (F::kOffset == 0) return -1;
    return 7 - __builtin_ctz(F::kOffset);
}

// ---- one row, one token: bandwidth-bound, reads a run of weights and 256 bytes of x a step ------

/// Four registers of 2 x 4 partial sums to eight sums: first the four of the low halves.
ALWAYS_INLINE __m256i sum_quarters(const __m256i s[4]) {
    __m256i half[2];
    UNROLL
    for (int i = 0; i < 2; ++i)
        half[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(s[2 * i], s[2 * i + 1]),
                                   _mm256_unpackhi_epi32(s[2 * i], s[2 * i + 1]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(half[0], half[1]),
                            _mm256_unpackhi_epi64(half[0], half[1]));
}

ALWAYS_INLINE __m256i load_ints(const std::int32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
ALWAYS_INLINE __m256i load_q(const std::uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

template <class F>
struct GroupsOf {
    using type = Groups32;
    static std::int64_t at(const QuantizedX& x) { return x.at32; }
};
template <class F>
requires(F::kGroup == 16) struct GroupsOf<F> {
    using type = Groups16;
    static std::int64_t at(const QuantizedX& x) { return x.at16; }
};

/// Registers of lanes: eight groups each.
template <class F>
inline constexpr int kLaneRegisters = F::kGroup == 32 ? 1 : 2;

/// One unpacked run of weights times the same run of one token.
/// @param xq    [256], then the groups at groups_at
template <class F>
ALWAYS_INLINE void dot_run(const Run& run, const std::uint8_t* xq, std::int64_t groups_at,
                           __m256* lanes) {
    const auto& x = *reinterpret_cast<const typename GroupsOf<F>::type*>(xq + groups_at);
    const __m256i zero = _mm256_setzero_si256();
    __m256i sums[2];
    if constexpr (F::kGroup == 32) {
        __m256i s[4];
        UNROLL
        for (int i = 0; i < 4; ++i)
            s[i] = dot4<F::kWide>(dot4<F::kWide>(zero, run.q[2 * i], load_q(xq + 64 * i)),
                                  run.q[2 * i + 1], load_q(xq + 64 * i + 32));
        sums[0] = sum_quarters(s);
    } else {
        UNROLL
        for (int part = 0; part < 2; ++part) {
            __m256i s[4];
            UNROLL
            for (int i = 0; i < 4; ++i)
                s[i] = dot4<F::kWide>(zero, run.q[4 * part + i], load_q(xq + 128 * part + 32 * i));
            sums[part] = sum_quarters(s);
        }
    }
    UNROLL
    for (int i = 0; i < kLaneRegisters<F>; ++i) {
        if constexpr (constexpr int kShift = offset_shift<F>(); kShift >= 0)
            sums[i] = _mm256_add_epi32(sums[i],
                                       _mm256_srai_epi32(load_ints(x.neg128_sum + 8 * i), kShift));
        const __m256 scale = _mm256_mul_ps(run.scale[i], _mm256_load_ps(x.scale + 8 * i));
        lanes[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i]), scale, lanes[i]);
        if constexpr (F::kHasMin)
            lanes[i] = _mm256_fnmadd_ps(run.min[i], _mm256_load_ps(x.sum + 8 * i), lanes[i]);
    }
}

/// Wide bytes as dot4 multiplies them.
template <class F>
ALWAYS_INLINE void bias_wide(Run& run) {
    if constexpr (F::kWide && kHasVnni) {
        UNROLL
        for (int i = 0; i < 8; ++i) run.q[i] = _mm256_xor_si256(run.q[i], _mm256_set1_epi8(-128));
    }
}

/// Unpacks the runs of a row one after the other. Formats with a step ahead take it for the next
/// run before they finish this one.
template <class F>
struct Stage {
    ALWAYS_INLINE void look_ahead(const std::uint8_t*) {}
    ALWAYS_INLINE void load(const std::uint8_t* p, bool, Run& run) {
        F::template load<true>(p, 8, run);
    }
};
template <class F>
requires requires {
    &F::look_ahead;
}
struct Stage<F> {
    Ahead ahead[2];
    int current = 0;
    ALWAYS_INLINE void look_ahead(const std::uint8_t* p) { F::look_ahead(p, ahead[current]); }
    ALWAYS_INLINE void load(const std::uint8_t* p, bool has_next, Run& run) {
        const Ahead& here = ahead[current];
        current ^= 1;
        look_ahead(has_next ? p + F::kRunBytes : p);
        stay_in_memory(ahead);
        F::finish(p, here, run);
    }
};

/// Rows one after the other, each run unpacked once for kTokens tokens.
template <class F, int kTokens>
void direct_rows(const TileArgs& args, int first_token) {
    const QuantizedX& x = *args.quantized;
    const std::int64_t run_bytes = x.run_bytes, groups_at = GroupsOf<F>::at(x);
    const std::int64_t num_full = args.k / kRunCols, end = num_full * run_bytes;
    const int rest = static_cast<int>(args.k % kRunCols / 32);
    const std::uint8_t* xq[kTokens];
    UNROLL
    for (int t = 0; t < kTokens; ++t)
        xq[t] = x.data + args.x_index[first_token + t] * x.row_bytes();
    for (int r = 0; r < args.num_rows; ++r) {
        const std::uint8_t* w = args.rows + r * args.row_bytes;
        __m256 lanes[kTokens][2];
        UNROLL
        for (int t = 0; t < kTokens; ++t) lanes[t][0] = lanes[t][1] = _mm256_setzero_ps();
        Run run;
        [[maybe_unused]] Stage<F> stage;
        if (end > 0) stage.look_ahead(w);
        for (std::int64_t at = 0; at < end; at += run_bytes, w += F::kRunBytes) {
            stage.load(w, at + run_bytes < end, run);
            bias_wide<F>(run);
            UNROLL
            for (int t = 0; t < kTokens; ++t) dot_run<F>(run, xq[t] + at, groups_at, lanes[t]);
        }
        if (rest > 0) {
            F::template load<false>(w, rest, run);
            bias_wide<F>(run);
            UNROLL
            for (int t = 0; t < kTokens; ++t) dot_run<F>(run, xq[t] + end, groups_at, lanes[t]);
        }
        UNROLL
        for (int t = 0; t < kTokens; ++t) {
            if constexpr (F::kGroup == 16) lanes[t][0] = _mm256_add_ps(lanes[t][0], lanes[t][1]);
            static_cast<float*>(args.out)[(first_token + t) * kTileRows + r] =
                sum_lanes(lanes[t][0]);
        }
    }
}

template <class F>
void integer_direct(const TileArgs& args) {
    int t = 0;
    for (; t + 4 <= args.num_tokens; t += 4) direct_rows<F, 4>(args, t);
    if (args.num_tokens - t == 3) direct_rows<F, 3>(args, t);
    if (args.num_tokens - t == 2) direct_rows<F, 2>(args, t);
    if (args.num_tokens - t == 1) direct_rows<F, 1>(args, t);
}

}  // namespace
}  // namespace ggml
