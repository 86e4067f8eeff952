// Attention without tensor cores: f32 products and sums, any sizes, any cache dtype. One warp walks
// the keys of one row, 32 at a time: first each lane has a key, then each lane has value dims.
// Keys that a row does not see are left out, not multiplied with zero: a broken later token cannot
// reach an earlier one. Bound by the loads of a lane's own key row, which only the L1 makes whole;
// it is the second opinion on the tiled kernels and the way of sizes that those do not take.

#include "launchers.hpp"
#include "rows.cuh"

namespace attention::gpu {
namespace {

constexpr int kWarps = kPlainRows;
constexpr int kThreads = 32 * kWarps;
static_assert(kWarps * kPlainMaxDim * 4 <= cuda::kMaxSharedBytes);

template <class T>
__device__ float widen(T x) {
    if constexpr (__is_same(T, __half))
        return __half2float(x);
    else if constexpr (__is_same(T, __nv_bfloat16))
        return __bfloat162float(x);
    else
        return x;
}

template <class T>
__device__ float dot(const float* query, const T* key, int dim) {
    float part[4] = {};
    int d = 0;
    for (; d + 4 <= dim; d += 4)
#pragma unroll
        for (int j = 0; j < 4; ++j) part[j] = fmaf(query[d + j], widen(key[d + j]), part[j]);
    for (; d < dim; ++d) part[0] = fmaf(query[d], widen(key[d]), part[0]);
    return (part[0] + part[1]) + (part[2] + part[3]);
}

/// @param kValues  value dims of a lane: up to 32 kValues in all
template <class T, int kValues>
__global__ void __launch_bounds__(kThreads) attend(const AttendParams p, int num_items, bool is_few) {
    extern __shared__ float queries[];
    cuda::wait_for_inputs();
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    float* query = queries + warp * p.key_dim;
    const auto* keys = static_cast<const T*>(p.keys);
    const auto* values = static_cast<const T*>(p.values);
    if (is_few) num_items = p.schedule.few_begin[p.batch.num_seqs] * p.shape.num_kv_heads;

    for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
        const Item item = find_item(p, i, is_few);
        if (warp >= item.num_rows) continue;
        const Target to = target_of(p, item, warp);
        const int pos = item.kv_len - item.q_len + (item.first_row + warp) / p.shape.group;
        __syncwarp();
        for (int d = lane; d < p.key_dim; d += 32)
            query[d] = load(p.q, to.token * p.q.row_stride + to.head * p.q.head_stride + d);
        __syncwarp();

        float sum[kValues] = {}, largest = ATTENTION_NEGATIVE_INFINITY, total = 0;
        for (int k0 = item.key_begin; k0 < item.key_end; k0 += 32) {
            const bool is_seen = sees(p, item, pos, k0 + lane);
            const std::int64_t slot = is_seen ? key_slot(p, item, k0 + lane) : 0;
            const unsigned seen = __ballot_sync(0xffffffffu, is_seen);
            if (seen == 0) continue;
            float s = ATTENTION_NEGATIVE_INFINITY;
            if (is_seen)
                s = score(p, dot(query, keys + slot * p.key_row + item.kv_head * p.key_dim, p.key_dim));
            const float top = fmaxf(largest, cuda::warp_reduce(s, [](float a, float b) { return fmaxf(a, b); }));
            // All that is seen may be NaN or -inf; then nothing may be subtracted.
            const float reference = top == ATTENTION_NEGATIVE_INFINITY ? 0.0F : top;
            const float rescale = exp2f(largest - reference);
            const float weight = is_seen ? exp2f(s - reference) : 0.0F;
            total = total * rescale + cuda::warp_reduce(weight, cuda::Sum{});
            largest = top;
#pragma unroll
            for (int v = 0; v < kValues; ++v) sum[v] *= rescale;
            for (unsigned left = seen; left != 0; left &= left - 1) {
                const int j = __ffs(static_cast<int>(left)) - 1;
                const float w = __shfl_sync(0xffffffffu, weight, j);
                const std::int64_t from = __shfl_sync(0xffffffffu, slot, j);
                const T* value = values + from * p.value_row + item.kv_head * p.value_dim;
#pragma unroll
                for (int v = 0; v < kValues; ++v)
                    if (lane + 32 * v < p.value_dim) sum[v] = fmaf(w, widen(value[lane + 32 * v]), sum[v]);
            }
        }

        if (item.num_splits > 1) {
            if (lane == 0) p.partial_state[to.partial] = {largest, total};
#pragma unroll
            for (int v = 0; v < kValues; ++v)
                if (lane + 32 * v < p.value_dim)
                    p.partial_sum[to.partial * p.value_dim + lane + 32 * v] = sum[v];
            continue;
        }
        const Finish f = finish(largest, total, p.sinks, to.head);
        if (lane == 0 && p.lse != nullptr) p.lse[to.token * p.lse_stride + to.head] = f.lse;
#pragma unroll
        for (int v = 0; v < kValues; ++v)
            if (lane + 32 * v < p.value_dim)
                store(p.out, to.out + lane + 32 * v, total == 0 ? 0.0F : sum[v] * f.factor);
    }
}

template <class T>
cudaError_t launch_dtype(const AttendParams& p, int few_blocks, int many_items, const assay_stream* s) {
    const auto kernel = p.value_dim <= 256 ? attend<T, 8> : attend<T, 32>;
    const std::size_t shared = static_cast<std::size_t>(kWarps * p.key_dim) * sizeof(float);
    if (few_blocks > 0) {
        const cudaError_t error = cuda::launch(kernel, dim3(static_cast<unsigned>(few_blocks)),
                                               dim3(kThreads), shared, s, true, p, 0, true);
        if (error != cudaSuccess) return error;
    }
    return cuda::launch(kernel, dim3(static_cast<unsigned>(many_items)), dim3(kThreads), shared, s, true,
                        p, many_items, false);
}

}  // namespace

cudaError_t launch_plain(const AttendParams& p, std::int32_t kv_dtype, int few_blocks, int many_items,
                         const assay_stream* s) {
    if (kv_dtype == ASSAY_F32) return launch_dtype<float>(p, few_blocks, many_items, s);
    if (kv_dtype == ASSAY_F16) return launch_dtype<__half>(p, few_blocks, many_items, s);
    return launch_dtype<__nv_bfloat16>(p, few_blocks, many_items, s);
}

}  // namespace attention::gpu
