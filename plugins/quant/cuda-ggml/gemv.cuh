#pragma once

// Products with few rows of x: what the integer kernels and those in f32 have in common. Bound by the
// bytes of the weights.
//
// A warp computes two weight rows (of a gated unit: the gate's and the up's) with all rows of x of its
// tile; lanes walk along K, and their sums meet in one fixed order. So the bits of a result do not
// depend on the grid, only on which kernel ran.

#include "plugins/cuda/glu.cuh"
#include "plugins/cuda/launch.cuh"
#include "plugins/quant/cuda-ggml/weight_view.hpp"

#include <cstdint>

namespace cuda_ggml {

struct GemvOutput {
    WeightView w;
    std::int32_t rows;
    float* y;
    std::int64_t y_stride, y_head;  // of a slot, of a head
    const float* bias;              // null: none
    std::int64_t bias_stride;       // of an expert
};

/// One launch, by value. Weights are of one format and layout.
struct GemvArgs {
    GemvOutput out[ASSAY_MAX_FUSED];
    std::int32_t num_outputs;  // 1 with a glu: out[0] is the gate, out[1] the up
    cuda::Glu glu;             // kind ASSAY_GLU_NONE: none
    bool accumulate;

    std::int32_t op, k, num_experts, num_slots, num_x_rows;
    std::int32_t planes;  // rows of quantized x that make a row of x: 1, or 2 with ASSAY_MM_FINE
    std::int32_t tile;    // slots a block computes with at most
    bool is_single;       // a warp computes one row: where there are too few for all warps otherwise

    const float* x;
    std::int64_t x_stride, x_head;
    const std::int32_t *row_ids, *offset;

    const std::uint8_t* quantized;  // [rows of x (or slots), planes] of quantized_bytes(k); null: by the block
    bool is_quantized_by_slot;
};

/// The slots of one block: [first, first + count) of one expert or head.
struct Segment {
    std::int32_t expert, first, count;
};

/// blockIdx.y names a tile of slots; of grouped products a slot, and the first slot of each tile of an
/// expert does the work.
__device__ inline Segment segment_of(const GemvArgs& a) {
    const auto y = static_cast<std::int32_t>(blockIdx.y);
    if (a.op != ASSAY_Q_GROUPED) {
        const std::int32_t e = y % a.num_experts, first = y / a.num_experts * a.tile;
        return {e, first, min(a.tile, a.num_slots - first)};
    }
    std::int32_t low = 0, high = a.num_experts;  // the first expert whose end lies beyond the slot
    while (low < high) {
        const std::int32_t middle = (low + high) / 2;
        if (a.offset[middle + 1] > y)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == a.num_experts || y < a.offset[low]) return {0, 0, 0};
    const std::int32_t local = y - a.offset[low];
    if (local % a.tile != 0) return {0, 0, 0};
    return {low, y, min(a.tile, a.offset[low + 1] - y)};
}

/// The row of x that a slot reads; -1 when row_ids names none.
__device__ inline std::int32_t x_row_of(const GemvArgs& a, std::int32_t slot) {
    if (a.op != ASSAY_Q_GROUPED || a.row_ids == nullptr) return slot;
    const std::int32_t row = a.row_ids[slot];
    return row >= 0 && row < a.num_x_rows ? row : -1;
}
__device__ inline const float* x_of(const GemvArgs& a, std::int32_t row, std::int32_t expert) {
    return a.x + row * a.x_stride + (a.op == ASSAY_Q_BATCHED ? expert * a.x_head : 0);
}

/// Two rows that a warp computes together: of output `i`, or with a glu of both.
struct RowPair {
    std::int32_t i, row[2];  // row[1] < 0: there is none
};

__host__ __device__ inline std::int32_t num_pairs(const GemvArgs& a) {
    if (a.glu.kind != ASSAY_GLU_NONE) return a.out[0].rows;
    std::int32_t pairs = 0;
    for (std::int32_t i = 0; i < a.num_outputs; ++i) pairs += a.is_single ? a.out[i].rows : (a.out[i].rows + 1) / 2;
    return pairs;
}

__device__ inline RowPair pair_of(const GemvArgs& a, std::int32_t pair) {
    if (a.glu.kind != ASSAY_GLU_NONE) return {0, {pair, pair}};
    if (a.num_outputs == 1) {
        if (a.is_single) return {0, {pair, -1}};
        return {0, {2 * pair, 2 * pair + 1 < a.out[0].rows ? 2 * pair + 1 : -1}};
    }
    const auto pairs_of = [&](std::int32_t i) { return a.is_single ? a.out[i].rows : (a.out[i].rows + 1) / 2; };
    std::int32_t i = 0;
    while (i + 1 < a.num_outputs && pair >= pairs_of(i)) pair -= pairs_of(i++);
    if (a.is_single) return {i, {pair, -1}};
    return {i, {2 * pair, 2 * pair + 1 < a.out[i].rows ? 2 * pair + 1 : -1}};
}

/// Asks for a row of weights ahead of its use, a line a lane. @param step  lanes that share the row
__device__ inline void prefetch_row(const WeightView& w, std::int64_t row, int lane) {
#pragma unroll
    for (int p = 0; p < kMaxFields; ++p) {
        if (w.plane[p] == nullptr) break;
        const std::uint8_t* begin = w.plane[p] + row * w.row_bytes[p];
        for (std::int64_t at = lane * 128; at < w.row_bytes[p]; at += 32 * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + at));
    }
}

/// Weights of the first pair of each warp do not depend on the kernel before, unless an expert must be
/// chosen first.
__device__ inline void prefetch_first(const GemvArgs& a, std::int32_t pair, int lane) {
    if (a.op == ASSAY_Q_GROUPED || pair >= num_pairs(a)) return;
    const RowPair rows = pair_of(a, pair);
    const bool is_glu = a.glu.kind != ASSAY_GLU_NONE;
    const std::int64_t e = blockIdx.y % a.num_experts;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const GemvOutput& out = a.out[is_glu ? r : rows.i];
        if (rows.row[r] >= 0) prefetch_row(out.w, e * out.rows + rows.row[r], lane);
    }
}

/// What one lane writes of a pair: the sums of both rows for slot `slot`.
__device__ inline void write_pair(const GemvArgs& a, const RowPair& rows, const Segment& segment,
                                  std::int32_t slot, float v0, float v1) {
    const auto with_bias = [&](const GemvOutput& out, std::int32_t row, float v) {
        return out.bias != nullptr ? v + out.bias[segment.expert * out.bias_stride + row] : v;
    };
    const GemvOutput& out = a.out[rows.i];
    float* y = out.y + slot * out.y_stride + (a.op == ASSAY_Q_BATCHED ? segment.expert * out.y_head : 0);
    const auto put = [&](std::int32_t row, float v) { y[row] = a.accumulate ? y[row] + v : v; };
    if (a.glu.kind != ASSAY_GLU_NONE)
        return put(rows.row[0], a.glu(with_bias(a.out[0], rows.row[0], v0), with_bias(a.out[1], rows.row[1], v1)));
    put(rows.row[0], with_bias(out, rows.row[0], v0));
    if (rows.row[1] >= 0) put(rows.row[1], with_bias(out, rows.row[1], v1));
}

/// Cached in L1: the two loads of a lane lie in one sector.
__device__ inline uint4 load16(const std::uint8_t* p) {
    return __ldg(reinterpret_cast<const uint4*>(p));
}

/// Blocks that walk the pairs together, so that all multiprocessors have work and x is prepared seldom.
inline dim3 gemv_grid(const GemvArgs& a, std::int32_t num_units, int warps_per_block, int blocks_per_unit) {
    const std::int64_t segments = a.op == ASSAY_Q_GROUPED
                                      ? a.num_slots
                                      : std::int64_t{a.num_experts} * ((a.num_slots + a.tile - 1) / a.tile);
    const std::int64_t useful = (num_pairs(a) + warps_per_block - 1) / warps_per_block;
    std::int64_t wanted = std::int64_t{num_units} * blocks_per_unit;
    if (segments > 1) wanted = (4 * wanted + segments - 1) / segments;
    return dim3(static_cast<unsigned>(useful < wanted ? useful : wanted), static_cast<unsigned>(segments));
}

// gemv_int.cu, gemv_plain.cu
/// Whether the integer kernels know the format in this layout.
[[nodiscard]] bool has_integer_kernel(const WeightView& w);
/// Rows of quantized x that a block of the integer kernels takes: eight do not fit into registers.
inline constexpr std::int32_t kMaxIntegerRows = 4;
/// a.tile * a.planes is 1, 2 or 4, beyond 2 with a.quantized.
cudaError_t launch_integer(const GemvArgs& a, const assay_stream* s);
/// Rows of x (or slots) as the integer kernels read them.
cudaError_t launch_quantize(const GemvArgs& a, std::uint8_t* out, const assay_stream* s);
/// x is not rounded. Any format and layout, any number of slots.
cudaError_t launch_plain(GemvArgs a, std::int32_t max_rows_per_tile, const assay_stream* s);

}  // namespace cuda_ggml
