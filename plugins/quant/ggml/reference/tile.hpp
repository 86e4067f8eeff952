#pragma once

// The product of the reference tier: double accumulation in the order of k, one tile at a time.
//
// Compiled once an instruction set, which changes the speed and not one bit: the product of two f32
// is exact in f64, so a fused multiply-add rounds like a multiply and an add, and lanes are
// independent rows.

#include "plugins/quant/ggml/kernels.hpp"

namespace ggml {

/// A panel is f32 [kTileRows / 16, k, 16]: decoded rows side by side, sixteen at a time.
using ReferenceTileFn = void (*)(const TileArgs& args);

void reference_tile_baseline(const TileArgs& args);
void reference_tile_avx2(const TileArgs& args);
void reference_tile_avx512(const TileArgs& args);

namespace {

using Doubles = double __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));

inline constexpr int kPanelRows = 16;

/// @param panel    [k, kPanelRows]
/// @param out      [num_tokens, kTileRows], at the first of these rows
/// @param kTokens  tokens at once: as many as the registers hold sums for
template <int kTokens>
void reference_tokens(const TileArgs& args, const float* panel, int first, double* out) {
    constexpr std::int64_t kChunk = 128;
    alignas(64) double x[kChunk * kTokens];
    Doubles sum[kTokens][2] = {};
    for (std::int64_t k0 = 0; k0 < args.k; k0 += kChunk) {
        const std::int64_t n = args.k - k0 < kChunk ? args.k - k0 : kChunk;
        for (int t = 0; t < kTokens; ++t)
            for (std::int64_t i = 0; i < n; ++i) x[t * kChunk + i] = args.x[first + t][k0 + i];
        for (std::int64_t i = 0; i < n; ++i, panel += kPanelRows) {
            const auto* w = reinterpret_cast<const Floats*>(panel);
            const Doubles low = __builtin_convertvector(w[0], Doubles);
            const Doubles high = __builtin_convertvector(w[1], Doubles);
            for (int t = 0; t < kTokens; ++t) {
                sum[t][0] += low * x[t * kChunk + i];
                sum[t][1] += high * x[t * kChunk + i];
            }
        }
    }
    for (int t = 0; t < kTokens; ++t)
        for (int r = 0; r < kPanelRows; ++r)
            out[(first + t) * kTileRows + r] = sum[t][r / 8][r % 8];
}

template <int kTokens>
void reference_tile(const TileArgs& args) {
    for (int r = 0; r < args.num_rows; r += kPanelRows) {
        const float* panel = static_cast<const float*>(args.panel) + r * args.k;
        double* out = static_cast<double*>(args.out) + r;
        int t = 0;
        for (; t + kTokens <= args.num_tokens; t += kTokens)
            reference_tokens<kTokens>(args, panel, t, out);
        for (; t < args.num_tokens; ++t) reference_tokens<1>(args, panel, t, out);
    }
}

}  // namespace
}  // namespace ggml
