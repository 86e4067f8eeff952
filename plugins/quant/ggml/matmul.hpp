#pragma once

// The operations of the ABI on top of a tier's tiles: argument checks, workspace, work split.

#include "abi/quant.h"
#include "plugins/quant/ggml/kernels.hpp"

#include <cstdint>

namespace ggml {

/// The most scratch that `op` asks for with up to max_m rows of x (grouped: slots), whatever its
/// flags.
/// @param num_lanes  lanes that get scratch of their own; a stream with more of them uses this many
[[nodiscard]] std::uint64_t workspace_bytes(const Tier& tier, std::uint32_t num_lanes,
                                            std::int32_t op, const assay_weight* const* w,
                                            std::int32_t num_weights, std::int64_t max_m) noexcept;

/// ASSAY_Q_MATMUL, ASSAY_Q_BATCHED and ASSAY_Q_GROUPED. INVALID with words when an argument does
/// not fit; y is untouched then.
[[nodiscard]] assay_status run_matmul(const Tier& tier, std::int32_t op, const assay_matmul& args,
                                      const assay_stream& stream, assay_error* err) noexcept;

/// ASSAY_Q_ROWS. The same decoders in every tier.
[[nodiscard]] assay_status run_rows(const assay_weight& w, const std::int32_t* row_ids,
                                    std::int64_t num_ids, const assay_tensor& out,
                                    const assay_stream& stream, assay_error* err) noexcept;

}  // namespace ggml
