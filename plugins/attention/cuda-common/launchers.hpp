#pragma once

// Launchers of the kernels that both images hold. Each queues its kernels on the stream and
// returns the launch error; none allocates or waits.

#include "params.hpp"

#include "abi/plugin.h"

#include <cuda_runtime.h>

namespace attention::gpu {

/// Writes the plan, one section per geometry, from the lengths in device memory.
cudaError_t launch_schedule(const BatchParams& batch, const Geometry* geometries,
                            std::size_t num_geometries, void* plan, std::int64_t max_seqs,
                            const assay_stream* s);

/// Rows of `from` [T, heads, dim] to the slots of their tokens, converted to `dtype`.
struct AppendParams {
    View from;
    void* plane;
    std::int32_t dtype, heads, dim;
    const std::int32_t* cu_q;
    const std::int32_t* slot_map;
    std::int32_t num_seqs;
};
cudaError_t launch_append(const AppendParams& p, std::int32_t num_tokens, const assay_stream* s);

/// out[i, :] = what lies at slots[i], widened to f32.
struct ReadParams {
    const void* plane;
    std::int32_t dtype, width;
    const std::int32_t* slots;
    float* out;
    std::int64_t out_stride;
};
cudaError_t launch_read(const ReadParams& p, std::int64_t num_slots, const assay_stream* s);

/// Attention in f32 arithmetic, for any sizes and cache dtype; the second opinion on the others.
/// @param few_blocks   blocks for the sequences whose keys are split; 0: there are none
/// @param many_items   items of the other sequences, key heads included
cudaError_t launch_plain(const AttendParams& p, std::int32_t kv_dtype, int few_blocks, int many_items,
                         const assay_stream* s);
constexpr std::int32_t kPlainRows = 8;
constexpr std::int32_t kPlainMaxDim = 1024;  // key and value dims

/// Merges the partial sums of the sequences whose keys were split, in order of the splits.
cudaError_t launch_combine(const AttendParams& p, std::int32_t num_tokens, const assay_stream* s);

}  // namespace attention::gpu
