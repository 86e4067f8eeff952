#pragma once

// What may be asked of the products by ggml formats, on any device.

#include "abi/quant.h"

#include <cstddef>
#include <cstdint>

namespace ggml {

/// The first reason why `q` cannot run where x and y are f32 (for the reason `why_f32`), or null. `why`
/// has room for the words that need numbers.
[[nodiscard]] const char* refusal(const assay_quant_query& q, const char* why_f32, char* why,
                                  std::size_t room) noexcept;

/// Checks everything of a call but what lies in the memory that its pointers name: weights, shapes,
/// dtypes, flags. OK, or a status with words.
[[nodiscard]] assay_status check_arguments(std::int32_t op, const assay_matmul& args,
                                           assay_error* err) noexcept;

/// Checks a weight alone: format, layout, shape, size of the data. OK, or a status with words.
[[nodiscard]] assay_status check_weight(const assay_weight* w, assay_error* err) noexcept;

}  // namespace ggml
