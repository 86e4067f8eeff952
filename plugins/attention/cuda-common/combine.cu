// The second pass of split keys: one warp merges the partial sums of one row, in order of the
// splits, so that the result does not depend on which block of threads came first. Reads
// 4 (Dv + 2) bytes per row and split, most of them from L2.

#include "launchers.hpp"
#include "rows.cuh"

namespace attention::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

__global__ void __launch_bounds__(kThreads) combine(const AttendParams p) {
    cuda::wait_for_inputs();
    const int token = p.batch.cu_q[0] + static_cast<int>(blockIdx.x);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
    // owner() counts the boundaries cu_q[1 ..] up to the token, over the whole block of threads.
    const int seq = owner(p.batch.cu_q, p.batch.num_seqs, token);
    if (seq >= p.batch.num_seqs || head >= p.num_q_heads) return;
    const int first = p.batch.cu_q[seq], q_len = p.batch.cu_q[seq + 1] - first;
    const int splits = p.schedule.num_splits[seq];
    if (q_len > kFewTokens || splits == 1) return;  // written directly

    const std::int64_t base =
        (std::int64_t{seq} * p.shape.max_splits + (token - first)) * p.num_q_heads + head;
    const std::int64_t step = std::int64_t{q_len} * p.num_q_heads;
    float top = ATTENTION_NEGATIVE_INFINITY;
    for (int i = lane; i < splits; i += 32) top = fmaxf(top, p.partial_state[base + i * step].x);
    top = cuda::warp_reduce(top, [](float a, float b) { return fmaxf(a, b); });
    const float reference = top == ATTENTION_NEGATIVE_INFINITY ? 0.0F : top;
    float total = 0;
    for (int i = 0; i < splits; ++i) {
        const float2 state = p.partial_state[base + i * step];
        total += state.y == 0 ? 0.0F : state.y * exp2f(state.x - reference);
    }
    const Finish f = finish(top, total, p.sinks, head);
    if (lane == 0 && p.lse != nullptr) p.lse[token * p.lse_stride + head] = f.lse;

    for (int d0 = 0; d0 < p.value_dim; d0 += 128) {
        float sum[4] = {};
#pragma unroll 4
        for (int i = 0; i < splits; ++i) {
            const float2 state = p.partial_state[base + i * step];
            if (state.y == 0) continue;  // a split of which the row sees nothing
            const float weight = exp2f(state.x - reference);
            const float* from = p.partial_sum + (base + i * step) * p.value_dim + d0 + lane;
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (d0 + lane + 32 * j < p.value_dim) sum[j] = fmaf(weight, from[32 * j], sum[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (d0 + lane + 32 * j < p.value_dim)
                store(p.out, token * p.out.row_stride + head * p.out.head_stride + d0 + lane + 32 * j,
                      total == 0 ? 0.0F : sum[j] * f.factor);
    }
}

}  // namespace

cudaError_t launch_combine(const AttendParams& p, std::int32_t num_tokens, const assay_stream* s) {
    const dim3 grid(static_cast<unsigned>(num_tokens), cuda::blocks_for(p.num_q_heads, kWarps));
    return cuda::launch(combine, grid, dim3(kThreads), 0, s, true, p);
}

}  // namespace attention::gpu
