// Grouped-query attention on the tensor cores of every target from 8.0 on, for both kinds of
// sequence: warps share a block's rows (many queries) or its keys (few), each with a softmax state
// of its own, and merge at the end.
//
// Few queries: bandwidth-bound; reads 2 (D + Dv) bytes per cached token and key head. Tiles of keys
// are double-buffered by cp.async, several blocks share a multiprocessor.
// Many queries: bound by the tensor cores, 2 (D + Dv) operations per query head and pair.

#include "../cuda-common/rows.cuh"
#include "gqa.hpp"

namespace attention::gpu {
namespace {

constexpr int kStages = 2;

/// @param D   head sizes padded to it
/// @param WM  warps along rows, 16 rows each
/// @param WN  warps along the keys of a tile
/// @param BN  keys of a tile
template <class T, int D, int WM, int WN, int BN>
struct Tile {
    static constexpr int kThreads = 32 * WM * WN, kRows = 16 * WM, kWarpKeys = BN / WN;
    static constexpr int kChunks = D / 8;  // 16-byte pieces of a row
    static constexpr int kQueryBytes = kRows * D * 2, kTileBytes = BN * D * 2;
    static constexpr int kStateBytes = WN * kRows * static_cast<int>(sizeof(float2));
    static constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes + kStateBytes;
    static_assert(kWarpKeys % 16 == 0 && kThreads % kChunks == 0);
    static_assert(WN * kRows * D * 4 <= 2 * kStages * kTileBytes, "the sums of all warps fit into the tiles");
};

template <class T, int D, int WM, int WN, int BN>
__device__ void load_queries(const AttendParams& p, const Item& item, char* to) {
    using S = Tile<T, D, WM, WN, BN>;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    for (int r = warp; r < S::kRows; r += WM * WN) {
        const bool is_row = r < item.num_rows;
        std::int64_t from = 0;
        if (is_row) {
            const Target t = target_of(p, item, r);
            from = t.token * p.q.row_stride + t.head * p.q.head_stride;
        }
        for (int d = 2 * lane; d < D; d += 64) {
            const float a = is_row && d < p.key_dim ? load(p.q, from + d) : 0.0F;
            const float b = is_row && d + 1 < p.key_dim ? load(p.q, from + d + 1) : 0.0F;
            *reinterpret_cast<std::uint32_t*>(to + swizzled<S::kChunks>(r, d / 8) + d % 8 * 2) = pack<T>(a, b);
        }
    }
}

/// Queues the copies of keys and values [k0, k0 + BN); zeros where there are none.
template <class T, int D, int WM, int WN, int BN>
__device__ void load_tile(const AttendParams& p, const Item& item, int k0, std::uint32_t keys,
                          std::uint32_t values) {
    using S = Tile<T, D, WM, WN, BN>;
    const int chunk = static_cast<int>(threadIdx.x) % S::kChunks;
    const auto* key_base = static_cast<const T*>(p.keys) + item.kv_head * p.key_dim + chunk * 8;
    const auto* value_base = static_cast<const T*>(p.values) + item.kv_head * p.value_dim + chunk * 8;
    const bool is_key = chunk * 8 < p.key_dim, is_value = chunk * 8 < p.value_dim;
#pragma unroll
    for (int row = static_cast<int>(threadIdx.x) / S::kChunks; row < BN; row += S::kThreads / S::kChunks) {
        const std::int64_t slot = key_slot(p, item, k0 + row);
        const std::int64_t at = slot < 0 ? 0 : slot;
        const std::uint32_t to = swizzled<S::kChunks>(row, chunk);
        copy_async(keys + to, is_key ? key_base + at * p.key_row : key_base - chunk * 8, slot >= 0 && is_key);
        copy_async(values + to, is_value ? value_base + at * p.value_row : value_base - chunk * 8,
                   slot >= 0 && is_value);
    }
    commit_copies();
}

template <class T, int D, int WM, int WN, int BN>
__global__ void __launch_bounds__(32 * WM * WN) attend(const AttendParams p, bool is_few) {
    using S = Tile<T, D, WM, WN, BN>;
    static_assert(S::kSharedBytes <= cuda::kMaxSharedBytes);
    extern __shared__ __align__(128) char shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int wm = warp % WM, wn = warp / WM;
    const int quad = lane % 4, eighth = lane % 8, matrix = lane / 8;
    char* tiles = shared + S::kQueryBytes;
    auto* states = reinterpret_cast<float2*>(tiles + 2 * kStages * S::kTileBytes);
    const std::uint32_t queries_at = shared_address(shared), tiles_at = shared_address(tiles);
    cuda::wait_for_inputs();
    const int num_items = is_few ? p.schedule.few_begin[p.batch.num_seqs] * p.shape.num_kv_heads
                                 : static_cast<int>(gridDim.x);

    for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
        const Item item = find_item(p, i, is_few);
        const int first_tile = item.key_begin / BN * BN;
        const int num_tiles = item.key_end > first_tile ? (item.key_end - first_tile + BN - 1) / BN : 0;
        const auto keys_at = [&](int t) { return tiles_at + static_cast<std::uint32_t>(t % kStages * 2 * S::kTileBytes); };
        if (num_tiles > 0)
            load_tile<T, D, WM, WN, BN>(p, item, first_tile, keys_at(0), keys_at(0) + S::kTileBytes);
        load_queries<T, D, WM, WN, BN>(p, item, shared);

        // The two rows of this lane: lane / 4 and 8 further of the warp's 16.
        int pos[2], first_key[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = wm * 16 + h * 8 + lane / 4;
            pos[h] = r < item.num_rows ? item.kv_len - item.q_len + (item.first_row + r) / p.shape.group : -1;
            first_key[h] = p.shape.window != 0 ? pos[h] - p.shape.window + 1 : 0;
        }
        float sum[D / 8][4] = {};
        float largest[2] = {ATTENTION_NEGATIVE_INFINITY, ATTENTION_NEGATIVE_INFINITY}, total[2] = {};

        for (int t = 0; t < num_tiles; ++t) {
            if (t + 1 < num_tiles) {
                load_tile<T, D, WM, WN, BN>(p, item, first_tile + (t + 1) * BN, keys_at(t + 1),
                                            keys_at(t + 1) + S::kTileBytes);
                wait_copies<1>();
            } else {
                wait_copies<0>();
            }
            __syncthreads();
            const std::uint32_t keys = keys_at(t), values = keys + S::kTileBytes;
            const int warp_key = wn * S::kWarpKeys;

            float s[S::kWarpKeys / 8][4] = {};
#pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                std::uint32_t a[4];
                load_matrices(a, queries_at + swizzled<S::kChunks>(wm * 16 + matrix % 2 * 8 + eighth, 2 * d + matrix / 2));
#pragma unroll
                for (int n = 0; n < S::kWarpKeys / 16; ++n) {
                    std::uint32_t b[4];
                    load_matrices(b, keys + swizzled<S::kChunks>(warp_key + n * 16 + matrix / 2 * 8 + eighth,
                                                                 2 * d + matrix % 2));
                    multiply<T>(s[2 * n], a, b[0], b[1]);
                    multiply<T>(s[2 * n + 1], a, b[2], b[3]);
                }
            }

            // Scores, masked where a row of the block may not see a key of the tile.
            const int k0 = first_tile + t * BN + warp_key;
            const bool is_edge = first_tile + (t + 1) * BN > min(item.first_pos + 1, item.key_end) ||
                                 first_tile + t * BN < item.key_begin ||
                                 (p.shape.window != 0 && first_tile + t * BN <= item.last_pos - p.shape.window);
            float top[2] = {largest[0], largest[1]};
#pragma unroll
            for (int n = 0; n < S::kWarpKeys / 8; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int k = k0 + n * 8 + quad * 2 + e % 2;
                    float x = score(p, s[n][e]);
                    if (is_edge && (k > pos[e / 2] || k < first_key[e / 2] || k >= item.key_end))
                        x = ATTENTION_NEGATIVE_INFINITY;
                    s[n][e] = x;
                    top[e / 2] = fmaxf(top[e / 2], x);
                }
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
                top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
                const float reference = top[h] == ATTENTION_NEGATIVE_INFINITY ? 0.0F : top[h];
                const float rescale = exp2_approx(largest[h] - reference);
                largest[h] = top[h];
                total[h] *= rescale;
#pragma unroll
                for (int n = 0; n < S::kWarpKeys / 8; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const float w = exp2_approx(s[n][2 * h + e] - reference);
                        s[n][2 * h + e] = w;
                        total[h] += w;
                    }
#pragma unroll
                for (int d = 0; d < D / 8; ++d) {
                    sum[d][2 * h] *= rescale;
                    sum[d][2 * h + 1] *= rescale;
                }
            }

#pragma unroll
            for (int n = 0; n < S::kWarpKeys / 16; ++n) {
                const std::uint32_t a[4] = {pack<T>(s[2 * n][0], s[2 * n][1]), pack<T>(s[2 * n][2], s[2 * n][3]),
                                            pack<T>(s[2 * n + 1][0], s[2 * n + 1][1]),
                                            pack<T>(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
                for (int d = 0; d < D / 16; ++d) {
                    std::uint32_t b[4];
                    load_matrices_transposed(
                        b, values + swizzled<S::kChunks>(warp_key + n * 16 + matrix % 2 * 8 + eighth, 2 * d + matrix / 2));
                    multiply<T>(sum[2 * d], a, b[0], b[1]);
                    multiply<T>(sum[2 * d + 1], a, b[2], b[3]);
                }
            }
            __syncthreads();
        }

        // The sums of all warps meet in the memory of the tiles: [WN, rows, D].
        auto* sums = reinterpret_cast<float*>(tiles);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
            const int r = wn * S::kRows + wm * 16 + h * 8 + lane / 4;
            if (quad == 0) states[r] = {largest[h], total[h]};
#pragma unroll
            for (int d = 0; d < D / 8; ++d)
                *reinterpret_cast<float2*>(sums + r * D + d * 8 + quad * 2) = {sum[d][2 * h], sum[d][2 * h + 1]};
        }
        __syncthreads();
        for (int r = warp; r < item.num_rows; r += WM * WN) {
            const Target to = target_of(p, item, r);
            float all = ATTENTION_NEGATIVE_INFINITY, weight[WN], row_total = 0;
#pragma unroll
            for (int w = 0; w < WN; ++w) all = fmaxf(all, states[w * S::kRows + r].x);
            const float reference = all == ATTENTION_NEGATIVE_INFINITY ? 0.0F : all;
#pragma unroll
            for (int w = 0; w < WN; ++w) {
                weight[w] = WN == 1 ? 1.0F : exp2_approx(states[w * S::kRows + r].x - reference);
                row_total += weight[w] * states[w * S::kRows + r].y;
            }
            const bool is_partial = item.num_splits > 1;
            const Finish f = finish(all, row_total, p.sinks, to.head);
            if (lane == 0) {
                if (is_partial)
                    p.partial_state[to.partial] = {all, row_total};
                else if (p.lse != nullptr)
                    p.lse[to.token * p.lse_stride + to.head] = f.lse;
            }
            for (int d = lane; d < p.value_dim; d += 32) {
                float x = 0;
#pragma unroll
                for (int w = 0; w < WN; ++w) x = fmaf(weight[w], sums[(w * S::kRows + r) * D + d], x);
                if (is_partial)
                    p.partial_sum[to.partial * p.value_dim + d] = x;
                else
                    store(p.out, to.out + d, row_total == 0 ? 0.0F : x * f.factor);
            }
        }
        __syncthreads();
    }
}

template <class T, int D, int WM, int WN, int BN>
cudaError_t queue(const AttendParams& p, bool is_few, int blocks, const assay_stream* s) {
    using S = Tile<T, D, WM, WN, BN>;
    return cuda::launch(attend<T, D, WM, WN, BN>, dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads),
                        S::kSharedBytes, s, true, p, is_few);
}

template <class T>
cudaError_t few(const AttendParams& p, int num_units, const assay_stream* s) {
    const int dim = p.key_dim > p.value_dim ? p.key_dim : p.value_dim;
    if (dim <= 64) return queue<T, 64, 1, 4, 64>(p, true, 6 * num_units, s);
    if (dim <= 128) return queue<T, 128, 1, 4, 64>(p, true, 3 * num_units, s);
    return queue<T, 256, 1, 2, 32>(p, true, 3 * num_units, s);
}

template <class T>
cudaError_t many(const AttendParams& p, int items, const assay_stream* s) {
    const int dim = p.key_dim > p.value_dim ? p.key_dim : p.value_dim;
    if (dim <= 64) return queue<T, 64, 8, 1, 64>(p, false, items, s);
    if (dim <= 128) return queue<T, 128, 8, 1, 64>(p, false, items, s);
    return queue<T, 256, 4, 1, 32>(p, false, items, s);
}

}  // namespace

cudaError_t launch_mma_few(const AttendParams& p, std::int32_t kv_dtype, int num_units,
                           const assay_stream* s) {
    return kv_dtype == ASSAY_F16 ? few<__half>(p, num_units, s) : few<__nv_bfloat16>(p, num_units, s);
}

cudaError_t launch_mma_many(const AttendParams& p, std::int32_t kv_dtype, int items,
                            const assay_stream* s) {
    return kv_dtype == ASSAY_F16 ? many<__half>(p, items, s) : many<__nv_bfloat16>(p, items, s);
}

}  // namespace attention::gpu
