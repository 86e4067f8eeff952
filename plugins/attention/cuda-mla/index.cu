// Scores of the indexer: score(t, s) = sum_h weight[t, h] max(0, q[t, h] . k[s]). Index keys are
// f32, and so exact must the scores be: each operand is cut into two tf32 numbers (22 bits), three
// of the four products count (the last is below 2^-22). Bound by the tensor cores, 6 heads dim
// operations per pair; decode reads 4 dim bytes per key and comes close to bandwidth.
//
// A block takes a tile of keys and some query tokens of one sequence; a warp takes 16 of the keys.

#include "../cuda-common/rows.cuh"
#include "mla.hpp"

namespace attention::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpKeys = 16;
constexpr int kKeys = kWarps * kWarpKeys;  // of a tile
constexpr int kTokens = 8;                 // of a block

/// x = high + low + rest, both tf32; the rest is below 2^-22 |x|.
__device__ void cut(float x, std::uint32_t& high, std::uint32_t& low) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(x));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(x - __uint_as_float(high)));
}

/// Rows of shared memory are dim + 4 long: the fragments of eight rows lie in all banks.
__device__ int padded_dim(int dim) {
    return (dim + 7) / 8 * 8 + 4;
}

/// This warp's keys [k0 + its first, + kWarpKeys) to shared memory; zeros past the last one. All
/// copies are under way at once where rows are whole pieces of 16 bytes.
__device__ void load_keys(const IndexParams& p, int seq, int k0, int steps, int stride, float* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const std::int32_t* blocks = p.batch.block_table + std::int64_t{seq} * p.batch.max_blocks;
    const int k = k0 + warp * kWarpKeys + lane % kWarpKeys;
    const std::int64_t own = k < p.batch.kv_len[seq] ? slot_of(p.batch, blocks, k) : -1;
    const bool is_whole = p.dim % 4 == 0;
#pragma unroll 4
    for (int r = 0; r < kWarpKeys; ++r) {
        const std::int64_t slot = __shfl_sync(0xffffffffu, own, r);
        const float* from = p.keys + (slot < 0 ? 0 : slot) * p.dim;
        if (is_whole) {
            for (int d = 4 * lane; d < 8 * steps; d += 128) {
                const bool is_there = slot >= 0 && d < p.dim;
                copy_async(shared_address(to + r * stride + d), is_there ? from + d : p.keys, is_there);
            }
        } else {
            for (int d = lane; d < 8 * steps; d += 32) to[r * stride + d] = slot >= 0 && d < p.dim ? from[d] : 0.0F;
        }
    }
    commit_copies();
    wait_copies<0>();
}

__global__ void __launch_bounds__(kThreads) index_scores(const IndexParams p) {
    extern __shared__ float shared[];
    cuda::wait_for_inputs();
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int group = lane / 4, quad = lane % 4;
    const int stride = padded_dim(p.dim), steps = (p.dim + 7) / 8, head_tiles = (p.heads + 15) / 16;
    float* keys = shared;                       // [kKeys, stride]
    float* queries = shared + kKeys * stride;   // [16, stride], one tile of heads at a time
    float* weights = queries + 16 * stride;     // [16]
    const int k0 = static_cast<int>(blockIdx.x) * kKeys;
    const int first = p.batch.cu_q[0] + p.first_token + static_cast<int>(blockIdx.y) * kTokens;
    const int last = min(first + kTokens, p.batch.cu_q[0] + p.first_token + p.num_tokens);

    int loaded = -1;  // the sequence whose keys are in shared memory
    for (int token = first; token < last; ++token) {
        const int seq = owner(p.batch.cu_q, p.batch.num_seqs, token);
        if (seq >= p.batch.num_seqs) break;
        const int visible = p.batch.kv_len[seq] - p.batch.cu_q[seq + 1] + token + 1;
        if (visible <= p.topk || k0 >= visible) continue;
        if (seq != loaded) {
            __syncthreads();
            load_keys(p, seq, k0, steps, stride, keys + warp * kWarpKeys * stride);
            loaded = seq;
        }
        float score[2][2] = {};  // [8 keys][of this lane]
        for (int tile = 0; tile < head_tiles; ++tile) {
            __syncthreads();
#pragma unroll
            for (int r = warp; r < 16; r += kWarps) {
                const int head = tile * 16 + r;
                const std::int64_t from = token * p.q.row_stride + head * p.q.head_stride;
                for (int d = lane; d < 8 * steps; d += 32)
                    queries[r * stride + d] = head < p.heads && d < p.dim ? load(p.q, from + d) : 0.0F;
                if (lane == 0)
                    weights[r] = head < p.heads ? p.head_weight[token * p.weight_stride + head] : 0.0F;
            }
            __syncthreads();
            float c[2][4] = {};
            for (int step = 0; step < steps; ++step) {
                const int d = 8 * step + quad;
                std::uint32_t a[4], a_low[4];
                cut(queries[group * stride + d], a[0], a_low[0]);
                cut(queries[(group + 8) * stride + d], a[1], a_low[1]);
                cut(queries[group * stride + d + 4], a[2], a_low[2]);
                cut(queries[(group + 8) * stride + d + 4], a[3], a_low[3]);
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const float* key = keys + (warp * kWarpKeys + n * 8 + group) * stride + d;
                    std::uint32_t b0, b1, b0_low, b1_low;
                    cut(key[0], b0, b0_low);
                    cut(key[4], b1, b1_low);
                    multiply_tf32(c[n], a_low, b0, b1);
                    multiply_tf32(c[n], a, b0_low, b1_low);
                    multiply_tf32(c[n], a, b0, b1);
                }
            }
            // Heads lie along the rows: lane / 4 and 8 further. NaN stays.
            const float w0 = weights[group], w1 = weights[group + 8];
            const bool is_head[2] = {tile * 16 + group < p.heads, tile * 16 + group + 8 < p.heads};
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    if (is_head[0]) score[n][e] = fmaf(w0, c[n][e] < 0 ? 0.0F : c[n][e], score[n][e]);
                    if (is_head[1]) score[n][e] = fmaf(w1, c[n][2 + e] < 0 ? 0.0F : c[n][2 + e], score[n][e]);
                }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float x = score[n][e];
                x += __shfl_xor_sync(0xffffffffu, x, 4);
                x += __shfl_xor_sync(0xffffffffu, x, 8);
                x += __shfl_xor_sync(0xffffffffu, x, 16);
                const int k = k0 + warp * kWarpKeys + n * 8 + quad * 2 + e;
                if (group == 0 && k < visible)
                    p.scores[(token - p.batch.cu_q[0] - p.first_token) * p.score_stride + k] = x;
            }
    }
}

}  // namespace

cudaError_t launch_index_scores(const IndexParams& p, std::int32_t max_kv_len, const assay_stream* s) {
    const int stride = (p.dim + 7) / 8 * 8 + 4;
    const std::size_t shared = static_cast<std::size_t>((kKeys + 16) * stride + 16) * sizeof(float);
    const dim3 grid(cuda::blocks_for(max_kv_len, kKeys), cuda::blocks_for(p.num_tokens, kTokens));
    return cuda::launch(index_scores, grid, dim3(kThreads), shared, s, true, p);
}

}  // namespace attention::gpu
