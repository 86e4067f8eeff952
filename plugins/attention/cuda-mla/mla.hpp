#pragma once

// The launchers of this image's own kernels.

#include "../cuda-common/params.hpp"

#include "abi/plugin.h"

#include <cuda_runtime.h>

namespace attention::gpu {

/// Widths that the tensor-core kernel holds; narrower ones are padded with zeros.
constexpr std::int32_t kMaxKeyDim = 576, kMaxValueDim = 512;

/// Tensor cores through mma.sync; f16 and bf16 caches, dense and with a selection.
/// @param rows   of a block of threads: 16 or 64, as the schedule has it
/// @param items  0: few queries, on all multiprocessors
cudaError_t launch_mma(const AttendParams& p, std::int32_t kv_dtype, std::int32_t rows, int items,
                       int num_units, const assay_stream* s);
/// Dynamic shared memory of a block.
[[nodiscard]] std::uint64_t mma_shared_bytes(std::int32_t rows);

/// Tensor cores through wgmma; compute capability 9.0, blocks of kWgmmaRows rows.
constexpr std::int32_t kWgmmaRows = 64;
cudaError_t launch_wgmma(const AttendParams& p, std::int32_t kv_dtype, int items, int num_units,
                         const assay_stream* s);

/// score(t, s) of the ABI, for the tokens of a wave.
struct IndexParams {
    BatchParams batch;
    View q;  // [T, heads, dim]
    const float* head_weight;
    std::int64_t weight_stride;
    const float* keys;  // pages of f32, [dim] per token
    std::int32_t heads, dim, topk;
    std::int32_t first_token, num_tokens;  // of the wave, counted from the batch's first
    float* scores;                         // [num_tokens, score_stride]
    std::int64_t score_stride;
    std::int32_t* topk_slots;
    std::int64_t topk_stride;
};
cudaError_t launch_index_scores(const IndexParams& p, std::int32_t max_kv_len, const assay_stream* s);
cudaError_t launch_topk(const IndexParams& p, const assay_stream* s);

}  // namespace attention::gpu
