#pragma once

// Products in f32: weights are f32, or widened to it exactly; x is f32.
//
// out = sum of sixteen lanes, lane i accumulating k = i, i + 16, ... with one fused multiply-add
// each. The order belongs to the pair of a row and a token alone, whatever block they stand in.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

struct WeightF32 {
    static constexpr int kBytes = 4;
    static ALWAYS_INLINE F16 load16(const std::uint8_t* p) {
        return load(reinterpret_cast<const float*>(p));
    }
};
struct WeightBf16 {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE F16 load16(const std::uint8_t* p) { return widen_bf16(p); }
};
struct WeightHalf {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE F16 load16(const std::uint8_t* p) { return widen_half(p); }
};

/// Rows times tokens whose sums fit the registers.
#if defined(__AVX512F__)
inline constexpr int kBlockRows = 4, kBlockTokens = 4;
#else
inline constexpr int kBlockRows = 2, kBlockTokens = 2;
#endif

template <class W>
ALWAYS_INLINE F16 load_tail(const std::uint8_t* p, int n) {
    alignas(64) std::uint8_t all[16 * W::kBytes] = {};
    for (int i = 0; i < n * W::kBytes; ++i) all[i] = p[i];
    return W::load16(all);
}

/// @param w    kRows rows, row_bytes apart
/// @param x    kTokens rows of [k]
/// @param out  [kTokens, kTileRows]
template <class W, int kRows, int kTokens>
ALWAYS_INLINE void dense_block(const std::uint8_t* w, std::int64_t row_bytes, const float* const* x,
                               std::int64_t k, float* out) {
    F16 sum[kRows][kTokens];
    UNROLL
    for (int r = 0; r < kRows; ++r) UNROLL
    for (int t = 0; t < kTokens; ++t) sum[r][t] = zero();
    std::int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
        F16 xs[kTokens];
        UNROLL
        for (int t = 0; t < kTokens; ++t) xs[t] = load(x[t] + i);
        UNROLL
        for (int r = 0; r < kRows; ++r) {
            const F16 ws = W::load16(w + r * row_bytes + i * W::kBytes);
            UNROLL
            for (int t = 0; t < kTokens; ++t) sum[r][t] = fma(ws, xs[t], sum[r][t]);
        }
    }
    if (const int rest = static_cast<int>(k - i); rest > 0) {
        UNROLL
        for (int r = 0; r < kRows; ++r) {
            const F16 ws = load_tail<W>(w + r * row_bytes + i * W::kBytes, rest);
            UNROLL
            for (int t = 0; t < kTokens; ++t)
                sum[r][t] = fma(ws, load_first(x[t] + i, rest), sum[r][t]);
        }
    }
    UNROLL
    for (int r = 0; r < kRows; ++r) UNROLL
    for (int t = 0; t < kTokens; ++t) out[t * kTileRows + r] = sum_lanes(sum[r][t]);
}

template <class W, int kRows>
void dense_rows(const std::uint8_t* w, std::int64_t row_bytes, const TileArgs& args, float* out) {
    int t = 0;
    for (; t + kBlockTokens <= args.num_tokens; t += kBlockTokens)
        dense_block<W, kRows, kBlockTokens>(w, row_bytes, args.x + t, args.k, out + t * kTileRows);
    for (; t < args.num_tokens; ++t)
        dense_block<W, kRows, 1>(w, row_bytes, args.x + t, args.k, out + t * kTileRows);
}

template <class W>
void dense_tile(const std::uint8_t* w, std::int64_t row_bytes, const TileArgs& args) {
    auto* out = static_cast<float*>(args.out);
    int r = 0;
    for (; r + kBlockRows <= args.num_rows; r += kBlockRows)
        dense_rows<W, kBlockRows>(w + r * row_bytes, row_bytes, args, out + r);
    for (; r < args.num_rows; ++r) dense_rows<W, 1>(w + r * row_bytes, row_bytes, args, out + r);
}

template <class W>
void dense_direct(const TileArgs& args) {
    dense_tile<W>(args.rows, args.row_bytes, args);
}

}  // namespace
}  // namespace ggml
