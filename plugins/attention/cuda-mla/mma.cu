// Absorbed multi-head latent attention on the tensor cores: all heads share one key of up to 576
// entries whose first 512 are the value, so a tile of keys is read once and used twice, for every
// row of the block. Rows are heads (of one token or of several), keys are positions or the slots of
// a selection.
//
// Bandwidth-bound up to some 16 heads, 1152 bytes per key and token; with 64 heads it does 121
// operations per byte, and what binds is reading operands from shared memory.
//
// Four warps share 16 or 32 rows: each scores a quarter of a tile's keys for the rows, weights meet
// in shared memory, and each sums a quarter of the value dims over all keys.

#include "../cuda-common/rows.cuh"
#include "mla.hpp"

namespace attention::gpu {
namespace {

constexpr int kColumns = 4;  // warps along keys and value dims
constexpr int kStages = 2;
constexpr int kKeyChunks = kMaxKeyDim / 8;
static_assert(kKeyChunks % 8 == 0);

/// @param MT  16-row tiles of a warp
/// @param WM  warps along rows
/// @param BN  keys of a tile
template <int MT, int WM, int BN>
struct Tile {
    static constexpr int kThreads = 32 * WM * kColumns, kRows = 16 * MT * WM;
    static constexpr int kWarpKeys = BN / kColumns, kWarpDims = kMaxValueDim / kColumns;
    static constexpr int kQueryBytes = kRows * kMaxKeyDim * 2, kTileBytes = BN * kMaxKeyDim * 2;
    static constexpr int kWeightChunks = BN / 8 < 8 ? 8 : BN / 8;  // rows of weights, padded
    static constexpr int kWeightBytes = kRows * kWeightChunks * 16;
    static constexpr int kStateBytes = kColumns * kRows * 4;
    static constexpr int kSharedBytes = kQueryBytes + kStages * kTileBytes + kWeightBytes + kStateBytes;
    static_assert(kWarpKeys == 8 || kWarpKeys == 16);
};
using Small = Tile<1, 1, 32>;  // 16 rows, every target
using Large = Tile<2, 2, 64>;  // 64 rows, targets with 227 KiB
static_assert(Small::kSharedBytes <= cuda::max_shared_bytes(120) && Large::kSharedBytes <= cuda::max_shared_bytes(90));

template <class T, class S>
__device__ void load_queries(const AttendParams& p, const Item& item, char* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    for (int r = warp; r < S::kRows; r += S::kThreads / 32) {
        const bool is_row = r < item.num_rows;
        std::int64_t from = 0;
        if (is_row) {
            const Target t = target_of(p, item, r);
            from = t.token * p.q.row_stride + t.head * p.q.head_stride;
        }
        for (int d = 2 * lane; d < kMaxKeyDim; d += 64) {
            const float a = is_row && d < p.key_dim ? load(p.q, from + d) : 0.0F;
            const float b = is_row && d + 1 < p.key_dim ? load(p.q, from + d + 1) : 0.0F;
            *reinterpret_cast<std::uint32_t*>(to + swizzled<kKeyChunks>(r, d / 8) + d % 8 * 2) = pack<T>(a, b);
        }
    }
}

/// Queues the copies of keys [k0, k0 + BN): eight threads a row, so that a row's slot is looked up
/// by few. Pieces past key_dim are zeros.
template <class T, class S, int BN>
__device__ void load_tile(const AttendParams& p, const Item& item, int k0, std::uint32_t keys) {
    const int part = static_cast<int>(threadIdx.x) % 8;
    const auto* base = static_cast<const T*>(p.keys);
    for (int row = static_cast<int>(threadIdx.x) / 8; row < BN; row += S::kThreads / 8) {
        const std::int64_t slot = key_slot(p, item, k0 + row);
        const T* from = base + (slot < 0 ? 0 : slot) * p.key_row;
#pragma unroll
        for (int c = 0; c < kKeyChunks / 8; ++c) {
            const int chunk = c * 8 + part;
            const bool is_there = slot >= 0 && chunk * 8 < p.key_dim;
            copy_async(keys + swizzled<kKeyChunks>(row, chunk), is_there ? from + chunk * 8 : base, is_there);
        }
    }
    commit_copies();
}

template <class T, int MT, int WM, int BN>
__global__ void __launch_bounds__(32 * WM * kColumns) attend(const AttendParams p, bool is_few) {
    using S = Tile<MT, WM, BN>;
    if constexpr (S::kSharedBytes <= cuda::kMaxSharedBytes) {
    extern __shared__ __align__(128) char shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int wm = warp / kColumns, wn = warp % kColumns;
    const int quad = lane % 4, eighth = lane % 8, matrix = lane / 8;
    char* tiles = shared + S::kQueryBytes;
    char* weights = tiles + kStages * S::kTileBytes;
    auto* shares = reinterpret_cast<float*>(weights + S::kWeightBytes);  // [kColumns, rows]
    const std::uint32_t queries_at = shared_address(shared), tiles_at = shared_address(tiles),
                        weights_at = shared_address(weights);
    cuda::wait_for_inputs();
    const int num_items = is_few ? p.schedule.few_begin[p.batch.num_seqs] : static_cast<int>(gridDim.x);
    const int key_steps = (p.key_dim + 31) / 32;  // of 32 entries
    const int first_row = wm * 16 * MT;           // of this warp

    for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
        const Item item = find_item(p, i, is_few);
        const int first_tile = item.key_begin / BN * BN;
        const int num_tiles = item.key_end > first_tile ? (item.key_end - first_tile + BN - 1) / BN : 0;
        const auto tile_at = [&](int t) { return tiles_at + static_cast<std::uint32_t>(t % kStages * S::kTileBytes); };
        if (num_tiles > 0) load_tile<T, S, BN>(p, item, first_tile, tile_at(0));
        load_queries<T, S>(p, item, shared);

        int pos[MT][2];
        float sum[MT][S::kWarpDims / 8][4] = {};
        float largest[MT][2], total[MT][2] = {};
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = first_row + m * 16 + h * 8 + lane / 4;
                pos[m][h] = item.kv_len - item.q_len + (item.first_row + min(r, item.num_rows - 1)) / p.shape.group;
                largest[m][h] = ATTENTION_NEGATIVE_INFINITY;
            }

        for (int t = 0; t < num_tiles; ++t) {
            if (t + 1 < num_tiles) {
                load_tile<T, S, BN>(p, item, first_tile + (t + 1) * BN, tile_at(t + 1));
                wait_copies<1>();
            } else {
                wait_copies<0>();
            }
            __syncthreads();
            const std::uint32_t keys = tile_at(t);

            // Scores of this warp's rows and quarter of the keys.
            constexpr int kBlocks = S::kWarpKeys / 8;
            float s[MT][kBlocks][4] = {};
#pragma unroll 3
            for (int step = 0; step < key_steps; ++step) {
                std::uint32_t b[kBlocks][4];  // 8 keys, 32 entries
#pragma unroll
                for (int n = 0; n < kBlocks; ++n)
                    load_matrices(b[n], keys + swizzled<kKeyChunks>(wn * S::kWarpKeys + n * 8 + eighth, 4 * step + matrix));
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int m = 0; m < MT; ++m) {
                        std::uint32_t a[4];
                        load_matrices(a, queries_at + swizzled<kKeyChunks>(first_row + m * 16 + matrix % 2 * 8 + eighth,
                                                                           4 * step + 2 * half + matrix / 2));
#pragma unroll
                        for (int n = 0; n < kBlocks; ++n) multiply<T>(s[m][n], a, b[n][2 * half], b[n][2 * half + 1]);
                    }
            }

            const int k0 = first_tile + t * BN;
            const bool is_edge = item.selection != nullptr || k0 + BN > min(item.first_pos + 1, item.key_end) ||
                                 (p.shape.window != 0 && k0 <= item.last_pos - p.shape.window);
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                float top[2] = {ATTENTION_NEGATIVE_INFINITY, ATTENTION_NEGATIVE_INFINITY};
#pragma unroll
                for (int n = 0; n < kBlocks; ++n)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int k = k0 + wn * S::kWarpKeys + n * 8 + quad * 2 + e % 2;
                        float x = score(p, s[m][n][e]);
                        if (is_edge && !sees(p, item, pos[m][e / 2], k)) x = ATTENTION_NEGATIVE_INFINITY;
                        s[m][n][e] = x;
                        top[e / 2] = fmaxf(top[e / 2], x);
                    }
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
                    top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
                    if (quad == 0) shares[wn * S::kRows + first_row + m * 16 + h * 8 + lane / 4] = top[h];
                }
            }
            __syncthreads();

            // The largest of the row over all four warps; weights to shared memory.
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int r = first_row + m * 16 + h * 8 + lane / 4;
                    float top = largest[m][h];
#pragma unroll
                    for (int w = 0; w < kColumns; ++w) top = fmaxf(top, shares[w * S::kRows + r]);
                    const float reference = top == ATTENTION_NEGATIVE_INFINITY ? 0.0F : top;
                    const float rescale = exp2_approx(largest[m][h] - reference);
                    largest[m][h] = top;
                    total[m][h] *= rescale;
#pragma unroll
                    for (int n = 0; n < kBlocks; ++n) {
                        const float w0 = exp2_approx(s[m][n][2 * h] - reference);
                        const float w1 = exp2_approx(s[m][n][2 * h + 1] - reference);
                        total[m][h] += w0 + w1;
                        const int key = wn * S::kWarpKeys + n * 8 + quad * 2;
                        *reinterpret_cast<std::uint32_t*>(weights + swizzled<S::kWeightChunks>(r, key / 8) + key % 8 * 2) =
                            pack<T>(w0, w1);
                    }
#pragma unroll
                    for (int d = 0; d < S::kWarpDims / 8; ++d) {
                        sum[m][d][2 * h] *= rescale;
                        sum[m][d][2 * h + 1] *= rescale;
                    }
                }
            __syncthreads();

            // Values: this warp's rows and quarter of the dims, all keys of the tile.
#pragma unroll
            for (int k = 0; k < BN / 16; ++k) {
                std::uint32_t a[MT][4];
#pragma unroll
                for (int m = 0; m < MT; ++m)
                    load_matrices(a[m], weights_at + swizzled<S::kWeightChunks>(first_row + m * 16 + matrix % 2 * 8 + eighth,
                                                                               2 * k + matrix / 2));
#pragma unroll
                for (int d = 0; d < S::kWarpDims / 16; ++d) {
                    const int dim = wn * S::kWarpDims + d * 16;
                    if (dim >= p.value_dim) continue;
                    std::uint32_t b[4];
                    load_matrices_transposed(
                        b, keys + swizzled<kKeyChunks>(k * 16 + matrix % 2 * 8 + eighth, dim / 8 + matrix / 2));
#pragma unroll
                    for (int m = 0; m < MT; ++m) {
                        multiply<T>(sum[m][2 * d], a[m], b[0], b[1]);
                        multiply<T>(sum[m][2 * d + 1], a[m], b[2], b[3]);
                    }
                }
            }
            __syncthreads();
        }

        // Totals of the four warps, then each writes its dims.
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                total[m][h] += __shfl_xor_sync(0xffffffffu, total[m][h], 1);
                total[m][h] += __shfl_xor_sync(0xffffffffu, total[m][h], 2);
                if (quad == 0) shares[wn * S::kRows + first_row + m * 16 + h * 8 + lane / 4] = total[m][h];
            }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = first_row + m * 16 + h * 8 + lane / 4;
                if (r >= item.num_rows) continue;
                float all = 0;
#pragma unroll
                for (int w = 0; w < kColumns; ++w) all += shares[w * S::kRows + r];
                const Target to = target_of(p, item, r);
                const bool is_partial = item.num_splits > 1;
                const Finish f = finish(largest[m][h], all, p.sinks, to.head);
                if (wn == 0 && quad == 0) {
                    if (is_partial)
                        p.partial_state[to.partial] = {largest[m][h], all};
                    else if (p.lse != nullptr)
                        p.lse[to.token * p.lse_stride + to.head] = f.lse;
                }
#pragma unroll
                for (int d = 0; d < S::kWarpDims / 8; ++d) {
                    const int dim = wn * S::kWarpDims + d * 8 + quad * 2;
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (dim + e >= p.value_dim) continue;
                        const float x = sum[m][d][2 * h + e];
                        if (is_partial)
                            p.partial_sum[to.partial * p.value_dim + dim + e] = x;
                        else
                            store(p.out, to.out + dim + e, all == 0 ? 0.0F : x * f.factor);
                    }
                }
            }
        __syncthreads();
    }
    }
}

template <class T, int MT, int WM, int BN>
cudaError_t queue(const AttendParams& p, bool is_few, int blocks, const assay_stream* s) {
    using S = Tile<MT, WM, BN>;
    return cuda::launch(attend<T, MT, WM, BN>, dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads),
                        S::kSharedBytes, s, true, p, is_few);
}

template <class T>
cudaError_t choose(const AttendParams& p, std::int32_t rows, int items, int num_units, const assay_stream* s) {
    if (rows == Large::kRows) return queue<T, 2, 2, 64>(p, items == 0, items == 0 ? num_units : items, s);
    return queue<T, 1, 1, 32>(p, items == 0, items == 0 ? 2 * num_units : items, s);
}

}  // namespace

cudaError_t launch_mma(const AttendParams& p, std::int32_t kv_dtype, std::int32_t rows, int items,
                       int num_units, const assay_stream* s) {
    return kv_dtype == ASSAY_F16 ? choose<__half>(p, rows, items, num_units, s)
                                 : choose<__nv_bfloat16>(p, rows, items, num_units, s);
}

std::uint64_t mma_shared_bytes(std::int32_t rows) {
    return static_cast<std::uint64_t>(rows == Large::kRows ? Large::kSharedBytes : Small::kSharedBytes);
}

}  // namespace attention::gpu
