#pragma once

// The launchers of this image's own kernels.

#include "../cuda-common/params.hpp"

#include "abi/plugin.h"

#include <cuda_runtime.h>

namespace attention::gpu {

/// Rows of a block of threads of mma.cu, by kind of sequence and padded head size.
constexpr std::int32_t kMmaFewRows = 16;
[[nodiscard]] constexpr std::int32_t mma_many_rows(std::int32_t head_dim) noexcept {
    return head_dim <= 128 ? 128 : 64;
}

/// Tensor cores through mma.sync; f16 and bf16 caches, head sizes that are multiples of 8, up to 256.
/// @param few_blocks  blocks for sequences whose keys are split; 0: there are none
cudaError_t launch_mma_few(const AttendParams& p, std::int32_t kv_dtype, int num_units,
                           const assay_stream* s);
cudaError_t launch_mma_many(const AttendParams& p, std::int32_t kv_dtype, int items,
                            const assay_stream* s);

/// Tensor cores through wgmma; compute capability 9.0, f16 and bf16 caches, head sizes 64 and 128.
constexpr std::int32_t kWgmmaRows = 128;
cudaError_t launch_wgmma_many(const AttendParams& p, std::int32_t kv_dtype, int items,
                              const assay_stream* s);

}  // namespace attention::gpu
