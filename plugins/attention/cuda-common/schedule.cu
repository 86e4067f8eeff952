// The plan of a step: how many items each sequence gives, per geometry. Made on the device from the
// lengths that the kernels read too, so that a captured graph follows what prepare() wrote last.
// Bounded by the latency of one small launch.

#include "launchers.hpp"
#include "rows.cuh"

namespace attention::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxSections = 8;
constexpr int kLeastSplit = 128, kMostOrderedSplit = 1024;  // keys
constexpr int kOrderedSplits = 16;  // wanted of a sequence whose split may depend on nothing else

struct Sections {
    Geometry shape[kMaxSections];
    Schedule at[kMaxSections];
};

struct Counts {
    int few_tiles, many_tiles, keys, q_len;
};

__device__ Counts count(const BatchParams& b, const Geometry& g, int seq) {
    const int q_len = b.cu_q[seq + 1] - b.cu_q[seq], kv_len = b.kv_len[seq];
    const bool is_few = q_len <= kFewTokens;
    const int tile = is_few ? g.few_rows : g.many_rows;
    const int tiles =
        g.topk != 0 ? q_len * ((g.group + tile - 1) / tile) : (q_len * g.group + tile - 1) / tile;
    const int before = kv_len - q_len;
    const int base = g.window != 0 ? max(0, before - g.window + 1) / kSplitStep * kSplitStep : 0;
    return {is_few ? tiles : 0, is_few ? 0 : tiles, g.topk != 0 ? g.topk : kv_len - base, q_len};
}

/// Keys of a split.
__device__ int split_length(const Geometry& g, const Counts& c, int total_tiles) {
    const int most = max(1, g.max_splits / max(c.q_len, 1));
    int length;
    if (g.wanted_items == 0) {
        length = min(max(c.keys / kOrderedSplits, kLeastSplit), kMostOrderedSplit);
    } else {
        const int splits = max(1, g.wanted_items / max(total_tiles * g.num_kv_heads, 1));
        length = max((c.keys + splits - 1) / splits, kLeastSplit);
    }
    length = max(length, (c.keys + most - 1) / most);
    return (length + kSplitStep - 1) / kSplitStep * kSplitStep;
}

__global__ void __launch_bounds__(kThreads) schedule(const BatchParams b, const Sections sections) {
    __shared__ int scratch[32];
    __shared__ int sums[2][kThreads];
    cuda::wait_for_inputs();
    const Geometry& g = sections.shape[blockIdx.x];
    const Schedule& at = sections.at[blockIdx.x];
    const int thread = static_cast<int>(threadIdx.x);

    int tiles = 0;
    for (int seq = thread; seq < b.num_seqs; seq += kThreads) tiles += count(b, g, seq).few_tiles;
    const int total_tiles = cuda::block_reduce(tiles, scratch, cuda::Sum{});

    int few_before = 0, many_before = 0;
    for (int first = 0; first < b.num_seqs; first += kThreads) {
        const int seq = first + thread;
        int few = 0, many = 0;
        if (seq < b.num_seqs) {
            const Counts c = count(b, g, seq);
            const int length = split_length(g, c, total_tiles);
            const int splits = max(1, (c.keys + length - 1) / length);
            at.split_len[seq] = length;
            at.num_splits[seq] = splits;
            few = c.few_tiles * splits;
            many = c.many_tiles;
        }
        sums[0][thread] = few;
        sums[1][thread] = many;
        __syncthreads();
        for (int step = 1; step < kThreads; step *= 2) {
            const int few_left = thread >= step ? sums[0][thread - step] : 0;
            const int many_left = thread >= step ? sums[1][thread - step] : 0;
            __syncthreads();
            sums[0][thread] += few_left;
            sums[1][thread] += many_left;
            __syncthreads();
        }
        if (seq < b.num_seqs) {
            at.few_begin[seq + 1] = few_before + sums[0][thread];
            at.many_begin[seq + 1] = many_before + sums[1][thread];
        }
        few_before += sums[0][kThreads - 1];
        many_before += sums[1][kThreads - 1];
        __syncthreads();
    }
    if (thread == 0) at.few_begin[0] = at.many_begin[0] = 0;
}

}  // namespace

cudaError_t launch_schedule(const BatchParams& batch, const Geometry* geometries,
                            std::size_t num_geometries, void* plan, std::int64_t max_seqs,
                            const assay_stream* s) {
    for (std::size_t first = 0; first < num_geometries; first += kMaxSections) {
        Sections part;
        const std::size_t n = num_geometries - first < kMaxSections ? num_geometries - first : kMaxSections;
        for (std::size_t i = 0; i < n; ++i) {
            part.shape[i] = geometries[first + i];
            part.at[i] = section(plan, max_seqs, first + i);
        }
        const cudaError_t error = cuda::launch(schedule, dim3(static_cast<unsigned>(n)), dim3(kThreads),
                                               0, s, true, batch, part);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace attention::gpu
