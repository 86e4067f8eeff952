#pragma once

// Image "cpu-paged16": the kernels of cpu-flash over the smallest cache, half precision in pages of
// 16 tokens.

#include "../common/layer.hpp"

#define IMAGE_ID "cpu-paged16"

namespace attention::flash {

constexpr Image kImage{
    .id = IMAGE_ID,
    .kv_dtypes = std::uint64_t{1} << ASSAY_F16,
    .default_kv_dtype = ASSAY_F16,
    .default_page_tokens = 16,
    .page_step = 16,
    .max_page_tokens = 16,
    .min_head_dim = 16,
    .max_head_dim = 256,
    .max_latent_dim = 1024,
    .max_index_head_dim = 256,
};

}  // namespace attention::flash
