// Mixture of experts: choosing, sorting, adding up.

#include "plugins/device/cuda/ops.hpp"
#include "plugins/device/cuda/rows.cuh"

#include <limits>

namespace cuda {

using namespace views;

namespace {

constexpr std::int64_t kMaxExperts = 1024;  // of one router call
constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

bool is_valid(const assay_router& r, std::int64_t num_experts) {
    if (num_experts < 1 || num_experts > kMaxExperts) return false;
    if (r.gating < 1 || r.gating > 4 || r.top_k < 1 || r.top_k > num_experts) return false;
    if (r.num_groups <= 1) return r.num_groups >= 0;
    if (num_experts % r.num_groups != 0 || r.top_groups < 1 || r.top_groups > r.num_groups)
        return false;
    return r.top_k <= r.top_groups * (num_experts / r.num_groups);
}

// ---- router: a warp a token, in f64 as the definition ---------------------------------------------

struct Best {
    double score;
    int index;  // -1: none
};
struct Better {
    __device__ Best operator()(const Best& a, const Best& b) const {
        if (a.index < 0) return b;
        if (b.index < 0) return a;
        if (a.score != b.score) return a.score > b.score ? a : b;
        return a.index < b.index ? a : b;
    }
};

__device__ Best warp_best(Best best) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Best other{__shfl_xor_sync(0xffffffffu, best.score, offset),
                         __shfl_xor_sync(0xffffffffu, best.index, offset)};
        best = Better{}(best, other);
    }
    return best;
}

/// The index of the largest score that is not taken, the lowest of equals; it is then taken.
__device__ int take_best(const double* score, unsigned char* is_taken, int n) {
    const int lane = static_cast<int>(threadIdx.x);
    Best best{kMinusInf, -1};
    for (int i = lane; i < n; i += 32)
        if (is_taken[i] == 0) best = Better{}(best, Best{score[i], i});
    const int index = warp_best(best).index;
    __syncwarp();
    if (lane == 0) is_taken[index] = 1;
    __syncwarp();
    return index;
}

/// Puts out of the running what does not lie in the best groups.
__device__ void limit_groups(const assay_router& r, bool has_bias, double* score, double* group_score,
                             unsigned char* is_taken, int n) {
    const int lane = static_cast<int>(threadIdx.x), groups = r.num_groups, per_group = n / groups;
    for (int g = lane; g < groups; g += 32) {
        double first = kMinusInf, second = kMinusInf;
        for (int i = g * per_group; i < (g + 1) * per_group; ++i) {
            if (score[i] > first) {
                second = first;
                first = score[i];
            } else if (score[i] > second) {
                second = score[i];
            }
        }
        group_score[g] = first + (has_bias && per_group > 1 ? second : 0.0);
        is_taken[g] = 0;
    }
    __syncwarp();
    for (int i = 0; i < r.top_groups; ++i) take_best(group_score, is_taken, groups);
    for (int i = lane; i < n; i += 32)
        if (is_taken[i / per_group] == 0) score[i] = kMinusInf;
    __syncwarp();
}

__device__ double gated(int gating, double logit) {
    switch (gating) {
        case 2:
            return 1.0 / (1.0 + exp(-logit));
        case 4:
            return sqrt(log1p(exp(-fabs(logit))) + (logit > 0 ? logit : 0));
        default:
            return logit;
    }
}

/// Shared memory: probabilities, scores and group scores [num_experts] f64, marks [num_experts].
__global__ void __launch_bounds__(32)
    router_kernel(assay_router r, KernelRows<const float> logits, const float* bias,
                  KernelRows<std::int32_t> ids, KernelRows<float> weights, int num_experts) {
    extern __shared__ double shared[];
    double *p = shared, *score = p + num_experts, *group_score = score + num_experts;
    auto* is_taken = reinterpret_cast<unsigned char*>(group_score + num_experts);
    wait_for_inputs();
    let_next_start();
    const int lane = static_cast<int>(threadIdx.x);
    const float* row = logits[blockIdx.x];
    if (r.gating == 1) {
        double max = kMinusInf, sum = 0;
        bool is_nan = false;
        for (int e = lane; e < num_experts; e += 32) {
            const auto x = static_cast<double>(row[e]);
            max = x > max ? x : max;
            is_nan = is_nan || x != x;
        }
        max = warp_reduce(max, Max{});
        if (__any_sync(0xffffffffu, is_nan)) max = std::numeric_limits<double>::quiet_NaN();
        for (int e = lane; e < num_experts; e += 32) sum += p[e] = exp(static_cast<double>(row[e]) - max);
        sum = warp_reduce(sum, Sum{});
        for (int e = lane; e < num_experts; e += 32) p[e] /= sum;
    } else {
        for (int e = lane; e < num_experts; e += 32) p[e] = gated(r.gating, static_cast<double>(row[e]));
    }
    for (int e = lane; e < num_experts; e += 32) {
        const double s = bias != nullptr ? p[e] + static_cast<double>(bias[e]) : p[e];
        score[e] = s != s ? kMinusInf : s;
    }
    __syncwarp();
    if (r.num_groups > 1) limit_groups(r, bias != nullptr, score, group_score, is_taken, num_experts);
    for (int e = lane; e < num_experts; e += 32) is_taken[e] = 0;
    __syncwarp();

    // The weights of the chosen stand where the scores of groups were.
    double* w = group_score;
    std::int32_t* to_ids = ids[blockIdx.x];
    for (int j = 0; j < r.top_k; ++j) {
        const int e = take_best(score, is_taken, num_experts);
        if (lane == 0) {
            to_ids[j] = e;
            w[j] = p[e];
        }
    }
    if (lane != 0) return;
    if (r.gating == 3) {
        double max = w[0], sum = 0;
        for (int j = 1; j < r.top_k; ++j) max = w[j] > max ? w[j] : max;
        for (int j = 0; j < r.top_k; ++j) sum += w[j] = exp(w[j] - max);
        for (int j = 0; j < r.top_k; ++j) w[j] /= sum;
    }
    if (r.normalize) {
        double sum = 0;
        for (int j = 0; j < r.top_k; ++j) sum += w[j];
        for (int j = 0; j < r.top_k; ++j) w[j] /= sum + 1e-20;
    }
    float* to = weights[blockIdx.x];
    for (int j = 0; j < r.top_k; ++j) to[j] = static_cast<float>(w[j] * static_cast<double>(r.scale));
}

// ---- sort ----------------------------------------------------------------------------------------

constexpr int kSortWarps = 8;
constexpr int kMaxSortExperts = 2048;
static_assert(kMaxSortExperts * kSortWarps * sizeof(std::int32_t) <= kMaxSharedBytes,
              "a histogram a warp lies in shared memory");

/// A stable counting sort by one block. Each warp owns a run of the pairs, in order, and a histogram of
/// them; within 32 pairs, lanes of the same expert are ranked by their lane. Ids out of range get slot
/// -1. Shared memory: [kSortWarps, num_experts] i32.
__global__ void __launch_bounds__(kSortWarps * 32)
    expert_sort_kernel(KernelRows<const std::int32_t> ids, int top_k, int num_pairs, int num_experts,
                       std::int32_t* slot_of, std::int32_t* row_ids, std::int32_t* offset) {
    extern __shared__ std::int32_t counts[];
    wait_for_inputs();
    let_next_start();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int per_warp = (num_pairs + kSortWarps * 32 - 1) / (kSortWarps * 32) * 32;
    const int begin = min(num_pairs, warp * per_warp), end = min(num_pairs, begin + per_warp);
    std::int32_t* mine = counts + warp * num_experts;
    for (int i = thread; i < kSortWarps * num_experts; i += kSortWarps * 32) counts[i] = 0;
    __syncthreads();

    const auto walk = [&](auto&& place) {
        for (int first = begin; first < end; first += 32) {
            const int pair = first + lane;
            const int e = pair < end ? ids[pair / top_k][pair % top_k] : -1;
            const bool counts_here = e >= 0 && e < num_experts;
            const unsigned same = __match_any_sync(0xffffffffu, counts_here ? e : -1 - lane);
            const int rank = __popc(same & ((1u << lane) - 1u));
            if (counts_here) place(pair, e, rank);
            else if (pair < end) place(pair, -1, 0);
            __syncwarp();
            if (counts_here && rank == 0) mine[e] += __popc(same);
            __syncwarp();
        }
    };
    walk([](int, int, int) {});
    __syncthreads();

    // offset[e], then in place of each warp's count its first slot.
    if (warp == 0) {
        int before = 0;
        for (int first = 0; first < num_experts; first += 32) {
            const int e = first + lane;
            int total = 0;
            for (int w = 0; e < num_experts && w < kSortWarps; ++w) total += counts[w * num_experts + e];
            int up_to = total;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, up_to, step);
                if (lane >= step) up_to += other;
            }
            if (e < num_experts) {
                int slot = before + up_to - total;
                offset[e] = slot;
                for (int w = 0; w < kSortWarps; ++w) {
                    const int count = counts[w * num_experts + e];
                    counts[w * num_experts + e] = slot;
                    slot += count;
                }
            }
            before += __shfl_sync(0xffffffffu, up_to, 31);
        }
        if (lane == 0) offset[num_experts] = before;
    }
    __syncthreads();
    walk([&](int pair, int e, int rank) {
        const int slot = e < 0 ? -1 : mine[e] + rank;
        slot_of[pair] = slot;
        if (slot >= 0) row_ids[slot] = pair / top_k;
    });
}

// ---- combine -------------------------------------------------------------------------------------

__global__ void combine_kernel(KernelRows<const float> y, std::int64_t num_slots,
                               const std::int32_t* slot_of, KernelRows<const float> weights, int top_k,
                               bool accumulate, KernelRows<float> out, std::int64_t tokens, int n) {
    wait_for_inputs();
    let_next_start();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    for (std::int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
        float* to = out[t];
        const float* w = weights[t];
        float sum = accumulate ? to[i] : 0.0f;
        for (int j = 0; j < top_k; ++j) {
            const std::int32_t slot = slot_of[t * top_k + j];
            const float value = slot >= 0 && slot < num_slots ? y[slot][i] : __int_as_float(0x7fffffff);
            sum = fmaf(w[j], value, sum);
        }
        to[i] = sum;
    }
}

}  // namespace

assay_status router(void*, const assay_router* r, const assay_tensor* logits,
                    const assay_tensor* bias, const assay_tensor* ids, const assay_tensor* weights,
                    const assay_stream* s) {
    if (r == nullptr || !is_f32_rows(logits, 2) || !is_rows(ids, ASSAY_I32, 2) ||
        !is_f32_rows(weights, 2) || !is_valid(*r, logits->shape[1]))
        return ASSAY_INVALID;
    const std::int64_t tokens = logits->shape[0], experts = logits->shape[1];
    if (ids->shape[0] != tokens || ids->shape[1] != r->top_k || !same_shape(*ids, *weights) ||
        (!is_absent(bias) && !is_vector(bias, experts)))
        return ASSAY_INVALID;
    if (tokens == 0) return ASSAY_OK;
    const std::size_t shared = static_cast<std::size_t>(experts) * (3 * sizeof(double) + 1);
    return run(router_kernel, dim3(static_cast<unsigned>(tokens)), dim3(32), shared, s, *r,
               kernel_rows<const float>(*logits), is_absent(bias) ? nullptr : floats(bias),
               kernel_rows<std::int32_t>(*ids), kernel_rows<float>(*weights), static_cast<int>(experts));
}

assay_status expert_sort(void*, const assay_tensor* ids, std::int32_t num_experts,
                         std::int32_t* slot_of, std::int32_t* row_ids, std::int32_t* offset,
                         const assay_stream* s) {
    if (!is_rows(ids, ASSAY_I32, 2) || num_experts < 1 || offset == nullptr) return ASSAY_INVALID;
    if (num_experts > kMaxSortExperts) return ASSAY_UNSUPPORTED;
    const std::int64_t pairs = ids->shape[0] * ids->shape[1];
    if (pairs > std::numeric_limits<std::int32_t>::max() - 4096 ||
        (pairs > 0 && (slot_of == nullptr || row_ids == nullptr)))
        return ASSAY_INVALID;
    const std::size_t shared = static_cast<std::size_t>(kSortWarps) * num_experts * sizeof(std::int32_t);
    return run(expert_sort_kernel, dim3(1), dim3(kSortWarps * 32), shared, s,
               kernel_rows<const std::int32_t>(*ids),
               static_cast<int>(ids->shape[1] > 0 ? ids->shape[1] : 1), static_cast<int>(pairs),
               static_cast<int>(num_experts), slot_of, row_ids, offset);
}

assay_status expert_combine(void*, const assay_tensor* y, const std::int32_t* slot_of,
                            const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                            const assay_stream* s) {
    if (!is_f32_rows(y, 2) || !is_f32_rows(weights, 2) || !is_f32_rows(out, 2) ||
        weights->shape[0] != out->shape[0] || y->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t tokens = out->shape[0], n = out->shape[1], top_k = weights->shape[1];
    if (tokens * top_k > 0 && slot_of == nullptr) return ASSAY_INVALID;
    if (tokens == 0 || n == 0) return ASSAY_OK;
    const dim3 grid(blocks_for(n, 256), static_cast<unsigned>(tokens < 65535 ? tokens : 65535));
    return run(combine_kernel, grid, dim3(256), 0, s, kernel_rows<const float>(*y), y->shape[0], slot_of,
               kernel_rows<const float>(*weights), static_cast<int>(top_k), accumulate,
               kernel_rows<float>(*out), tokens, static_cast<int>(n));
}

}  // namespace cuda
