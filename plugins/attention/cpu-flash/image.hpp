#pragma once

// Image "cpu-flash": any page of whole vectors, any of three dtypes.

#include "../common/layer.hpp"

#define IMAGE_ID "cpu-flash"

namespace attention::flash {

constexpr Image kImage{
    .id = IMAGE_ID,
    .kv_dtypes = std::uint64_t{1} << ASSAY_F32 | std::uint64_t{1} << ASSAY_F16 |
                 std::uint64_t{1} << ASSAY_BF16,
    .default_kv_dtype = ASSAY_F32,
    .default_page_tokens = 32,
    .page_step = 16,
    .max_page_tokens = 256,
    .min_head_dim = 16,
    .max_head_dim = 256,
    .max_latent_dim = 1024,
    .max_index_head_dim = 256,
};

}  // namespace attention::flash
