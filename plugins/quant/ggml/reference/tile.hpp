#pragma once

// The product of the reference tier: double accumulation in the order of k, one tile at a time.
//
// Compiled once an instruction set, which changes the speed and not one bit: the product of two f32
// is exact in f64, so a fused multiply-add rounds like a multiply and an add, and lanes are
// independent rows.

#include "plugins/quant/ggml/kernels.hpp"

namespace ggml {

/// A panel is f32 [k, kTileRows]: the decoded rows side by side.
using ReferenceTileFn = void (*)(const TileArgs& args);

void reference_tile_baseline(const TileArgs& args);
void reference_tile_avx2(const TileArgs& args);
void reference_tile_avx512(const TileArgs& args);

namespace {

using Doubles = double __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));

/// @param kTokens  tokens at once: as many as the registers hold sums for
template <int kTokens>
void reference_tokens(const TileArgs& args, int first) {
    constexpr std::int64_t kChunk = 128;
    alignas(64) double x[kChunk * kTokens];
    Doubles sum[kTokens][2] = {};
    const auto* panel = static_cast<const float*>(args.panel);
    for (std::int64_t k0 = 0; k0 < args.k; k0 += kChunk) {
        const std::int64_t n = args.k - k0 < kChunk ? args.k - k0 : kChunk;
        for (int t = 0; t < kTokens; ++t)
            for (std::int64_t i = 0; i < n; ++i) x[t * kChunk + i] = args.x[first + t][k0 + i];
        for (std::int64_t i = 0; i < n; ++i, panel += kTileRows) {
            const auto* w = reinterpret_cast<const Floats*>(panel);
            const Doubles low = __builtin_convertvector(w[0], Doubles);
            const Doubles high = __builtin_convertvector(w[1], Doubles);
            for (int t = 0; t < kTokens; ++t) {
                sum[t][0] += low * x[t * kChunk + i];
                sum[t][1] += high * x[t * kChunk + i];
            }
        }
    }
    auto* out = static_cast<double*>(args.out) + first * kTileRows;
    for (int t = 0; t < kTokens; ++t)
        for (int r = 0; r < kTileRows; ++r) out[t * kTileRows + r] = sum[t][r / 8][r % 8];
}

template <int kTokens>
void reference_tile(const TileArgs& args) {
    int t = 0;
    for (; t + kTokens <= args.num_tokens; t += kTokens) reference_tokens<kTokens>(args, t);
    for (; t < args.num_tokens; ++t) reference_tokens<1>(args, t);
}

}  // namespace
}  // namespace ggml
