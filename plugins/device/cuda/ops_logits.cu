// Logits: edits, masks and log-probabilities. The draw is in sampler.cu.

#include "plugins/device/cuda/ops.hpp"
#include "plugins/device/cuda/rows.cuh"

namespace cuda {

using namespace views;

namespace {

constexpr int kThreads = 1024;

__global__ void edit_kernel(KernelRows<float> logits, std::int64_t rows, std::int64_t n,
                            const assay_logit_edit* edits, std::int64_t num_edits) {
    wait_for_inputs();
    let_next_start();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= num_edits) return;
    const assay_logit_edit e = edits[i];
    if (e.row < 0 || e.row >= rows || e.token < 0 || e.token >= n) return;
    float& logit = logits[e.row][e.token];
    logit = (logit > 0 ? logit / e.repetition : logit * e.repetition) + e.add;
}

__global__ void mask_kernel(KernelRows<float> logits, int n, const std::uint32_t* bits,
                            std::int64_t words_per_row, const std::int32_t* mask_row) {
    wait_for_inputs();
    let_next_start();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const std::int32_t mask = mask_row[blockIdx.y];
    if (i >= n || mask < 0) return;
    if ((bits[mask * words_per_row + i / 32] >> (i % 32) & 1u) == 0) logits[blockIdx.y][i] = -INFINITY;
}

/// A place in the order: logit descending, id ascending.
struct Place {
    float logit;
    int id;  // -1: none
};
struct Earlier {
    __device__ Place operator()(const Place& a, const Place& b) const {
        if (a.id < 0) return b;
        if (b.id < 0) return a;
        if (a.logit != b.logit) return a.logit > b.logit ? a : b;
        return a.id < b.id ? a : b;
    }
};

__device__ Place block_earliest(Place place, Place* scratch) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Place other{__shfl_xor_sync(0xffffffffu, place.logit, offset),
                          __shfl_xor_sync(0xffffffffu, place.id, offset)};
        place = Earlier{}(place, other);
    }
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = place;
    __syncthreads();
    place = scratch[0];
    for (unsigned i = 1; i < blockDim.x / 32; ++i) place = Earlier{}(place, scratch[i]);
    __syncthreads();
    return place;
}

/// The first finite place behind `last` (id -1: of all).
__device__ Place next_place(const float* row, int n, Place last, Place* scratch) {
    Place best{0.0f, -1};
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
        const float x = row[i];
        if (!isfinite(x)) continue;
        if (last.id >= 0 && !(x < last.logit || (x == last.logit && i > last.id))) continue;
        best = Earlier{}(best, Place{x, i});
    }
    return block_earliest(best, scratch);
}

/// A block a row. The alternatives are found one pass each: they are few, and the row is in the cache.
__global__ void __launch_bounds__(kThreads)
    logprobs_kernel(KernelRows<const float> logits, int n, const std::int32_t* tokens, float* logprob,
                    int num_top, std::int32_t* top_ids, float* top_logprobs) {
    __shared__ Place places[32];
    __shared__ double sums[32];
    wait_for_inputs();
    let_next_start();
    const std::int64_t r = blockIdx.x;
    const float* row = logits[r];
    const Place first = next_place(row, n, Place{0.0f, -1}, places);
    double total = 0;
    if (first.id >= 0)
        for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
            if (isfinite(row[i])) total += static_cast<double>(expf(row[i] - first.logit));
    total = block_reduce(total, sums, Sum{});
    const double log_total = log(total), max = static_cast<double>(first.logit);
    const auto logprob_of = [&](float x) { return static_cast<float>(static_cast<double>(x) - max - log_total); };
    const bool leads = threadIdx.x == 0;
    if (leads && tokens != nullptr) {
        const std::int32_t token = tokens[r];
        const bool exists = first.id >= 0 && token >= 0 && token < n && isfinite(row[token]);
        logprob[r] = exists ? logprob_of(row[token]) : -INFINITY;
    }
    Place place = first;
    for (int j = 0; j < num_top; ++j) {
        if (j > 0 && place.id >= 0) place = next_place(row, n, place, places);
        if (!leads) continue;
        top_ids[r * num_top + j] = place.id;
        top_logprobs[r * num_top + j] = place.id >= 0 ? logprob_of(place.logit) : -INFINITY;
    }
}

}  // namespace

assay_status logits_edit(void*, const assay_tensor* logits, const assay_logit_edit* edits,
                         std::int64_t num_edits, const assay_stream* s) {
    if (!is_f32_rows(logits, 2) || num_edits < 0 || (num_edits > 0 && edits == nullptr))
        return ASSAY_INVALID;
    if (num_edits == 0) return ASSAY_OK;
    return run(edit_kernel, dim3(blocks_for(num_edits, 256)), dim3(256), 0, s, kernel_rows<float>(*logits),
               logits->shape[0], logits->shape[1], edits, num_edits);
}

assay_status logits_mask(void*, const assay_tensor* logits, const std::uint32_t* bits,
                         std::int64_t words_per_row, const std::int32_t* mask_row,
                         const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const std::int64_t rows = logits->shape[0], n = logits->shape[1];
    if (rows == 0 || n == 0) return ASSAY_OK;
    if (mask_row == nullptr || bits == nullptr || words_per_row < (n + 31) / 32 || rows > 65535)
        return ASSAY_INVALID;
    return run(mask_kernel, dim3(blocks_for(n, 256), static_cast<unsigned>(rows)), dim3(256), 0, s,
               kernel_rows<float>(*logits), static_cast<int>(n), bits, words_per_row, mask_row);
}

assay_status logprobs(void*, const assay_tensor* logits, const std::int32_t* tokens, float* logprob,
                      std::int32_t num_top, std::int32_t* top_ids, float* top_logprobs,
                      const assay_stream* s) {
    if (!is_f32_rows(logits, 2) || num_top < 0) return ASSAY_INVALID;
    const std::int64_t rows = logits->shape[0];
    if (rows == 0) return ASSAY_OK;
    if ((tokens != nullptr && logprob == nullptr) ||
        (num_top > 0 && (top_ids == nullptr || top_logprobs == nullptr)))
        return ASSAY_INVALID;
    return run(logprobs_kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, s,
               kernel_rows<const float>(*logits), static_cast<int>(logits->shape[1]), tokens, logprob,
               static_cast<int>(num_top), top_ids, top_logprobs);
}

}  // namespace cuda
