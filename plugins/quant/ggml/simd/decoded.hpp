#pragma once

// Any format with x in f32: weight rows are decoded to f32 once a panel, which every token passes
// over. A panel is f32 [num_rows, k].

#include "plugins/quant/ggml/simd/dense.hpp"
#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

std::int64_t decoded_panel_bytes(std::int64_t k) {
    return kTileRows * k * 4;
}

void decoded_tile(const TileArgs& args) {
    dense_tile<WeightF32>(static_cast<const std::uint8_t*>(args.panel), args.k * 4, args);
}

/// By the format's definition, element by element.
void decode_rows(const PackArgs& args) {
    auto* panel = static_cast<float*>(args.panel);
    const std::int64_t num_blocks = args.k / args.format->abi.block_cols;
    for (int r = 0; r < args.num_rows; ++r)
        args.format->decode(args.rows + r * args.row_bytes, num_blocks, panel + r * args.k);
}

/// The elements of a run, equal to the definition's: its products and differences are rounded
/// alike, and where its scale is a product too, the factors are regrouped by powers of two only.
/// @param out  [32 * num_groups]
template <class F>
ALWAYS_INLINE void store_run(const Run& run, int num_groups, float* out) {
    alignas(32) float scale[16], min[16];
    UNROLL
    for (int i = 0; i < 256 / F::kGroup / 8; ++i) {
        _mm256_store_ps(scale + 8 * i, run.scale[i]);
        if constexpr (F::kHasMin) _mm256_store_ps(min + 8 * i, run.min[i]);
    }
    UNROLL
    for (int i = 0; i < 8; ++i) {
        const __m256i q = _mm256_sub_epi8(run.q[i], _mm256_set1_epi8(F::kOffset));
        const __m128i halves[2] = {_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)};
        UNROLL
        for (int upper = 0; upper < 2; ++upper) {
            const int group = i / 2 + 4 * upper, half = i % 2;
            if (group >= num_groups) continue;
            const int at = F::kGroup == 32 ? group : lane16(2 * group + half);
            F16 value = widen_bytes(halves[upper]) * set1(scale[at]);
            if constexpr (F::kHasMin) value = value - set1(min[at]);
            store(out + 32 * group + 16 * half, value);
        }
    }
}

/// From unpacked runs.
template <class F>
void decode_runs(const PackArgs& args) {
    for (int r = 0; r < args.num_rows; ++r) {
        const std::uint8_t* w = args.rows + r * args.row_bytes;
        float* out = static_cast<float*>(args.panel) + r * args.k;
        const float* const end = out + args.k;
        Run run;
        for (; end - out >= kRunCols; out += kRunCols, w += F::kRunBytes) {
            F::template load<true>(w, 8, run);
            store_run<F>(run, 8, out);
        }
        if (const int num_groups = static_cast<int>(end - out) / 32; num_groups > 0) {
            F::template load<false>(w, num_groups, run);
            store_run<F>(run, num_groups, out);
        }
    }
}

}  // namespace
}  // namespace ggml
