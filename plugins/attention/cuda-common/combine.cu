// The second pass of split keys: one warp merges 128 partial sums of one row, in order of the splits, so that the result does not depend on which block of threads came first. Reads
// 4 (Dv + 2) bytes per row and split, most of them from L2.

#include "launchers.hpp"
#include "rows.cuh"

namespace attention::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

constexpr int kDims = 128;  // of a warp

__global__ void __launch_bounds__(kThreads) combine(const AttendParams p) {
    cuda::wait_for_inputs();
    const int token = p.batch.cu_q[0] + static_cast<int>(blockIdx.x);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int task = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int pieces = (p.value_dim + kDims - 1) / kDims, head = task / pieces;
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

    // 32 splits at a time: each lane has the weight of one, then all lanes walk them in order.
    const int d = task % pieces * kDims + 4 * lane;
    const bool is_whole = d + 4 <= p.value_dim && p.value_dim % 4 == 0;
    float total = 0, sum[4] = {};
    for (int i0 = 0; i0 < splits; i0 += 32) {
        float2 state{0, 0};
        if (i0 + lane < splits) state = p.partial_state[base + (i0 + lane) * step];
        // A split of which the row sees nothing counts for nothing, whatever its sums are.
        const float own = state.y == 0 ? 0.0F : exp2f(state.x - reference);
        const int n = min(32, splits - i0);
#pragma unroll 8
        for (int i = 0; i < n; ++i) {
            const float weight = __shfl_sync(0xffffffffu, own, i);
            total += weight * __shfl_sync(0xffffffffu, state.y, i);
            const float* from = p.partial_sum + (base + (i0 + i) * step) * p.value_dim + d;
            if (is_whole) {
                const float4 x = *reinterpret_cast<const float4*>(from);
                sum[0] = fmaf(weight, x.x, sum[0]);
                sum[1] = fmaf(weight, x.y, sum[1]);
                sum[2] = fmaf(weight, x.z, sum[2]);
                sum[3] = fmaf(weight, x.w, sum[3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (d + j < p.value_dim) sum[j] = fmaf(weight, from[j], sum[j]);
            }
        }
    }
    const Finish f = finish(top, total, p.sinks, head);
    if (task % pieces == 0 && lane == 0 && p.lse != nullptr) p.lse[token * p.lse_stride + head] = f.lse;
#pragma unroll
    for (int j = 0; j < 4; ++j)
        if (d + j < p.value_dim)
            store(p.out, token * p.out.row_stride + head * p.out.head_stride + d + j,
                  total == 0 ? 0.0F : sum[j] * f.factor);
}

}  // namespace

cudaError_t launch_combine(const AttendParams& p, std::int32_t num_tokens, const assay_stream* s) {
    const dim3 grid(static_cast<unsigned>(num_tokens), cuda::blocks_for(std::int64_t{p.num_q_heads} * ((p.value_dim + kDims - 1) / kDims), kWarps));
    return cuda::launch(combine, grid, dim3(kThreads), 0, s, true, p);
}

}  // namespace attention::gpu
