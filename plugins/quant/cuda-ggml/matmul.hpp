#pragma once

// The operations of the ABI: which kernels a call becomes, and the scratch they need.

#include "abi/quant.h"
#include "plugins/quant/cuda-ggml/gemm.hpp"

#include <cstdint>
#include <memory>

namespace cuda_ggml {

struct Instance {
    assay_device_ref device{};
    std::unique_ptr<Cublas> cublas;  // null: gemm_mma.cu
};

/// Slots beyond which a product goes to the tensor cores.
inline constexpr std::int64_t kMaxGemvSlots = 8;

[[nodiscard]] std::uint64_t workspace_bytes(const Instance& self, std::int32_t op, const assay_weight* const* w,
                                            std::int32_t num_weights, std::int64_t max_m) noexcept;

/// ASSAY_Q_MATMUL, ASSAY_Q_BATCHED and ASSAY_Q_GROUPED.
[[nodiscard]] assay_status run_matmul(Instance& self, std::int32_t op, const assay_matmul& args, const assay_stream& s,
                                      assay_error* err) noexcept;

}  // namespace cuda_ggml
