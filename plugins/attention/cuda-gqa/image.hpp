#pragma once

// Image "cuda-gqa": what it offers.

#include "../common/layer.hpp"

#define IMAGE_ID "cuda-gqa"

namespace attention::gpu {

constexpr std::uint64_t kFloats = std::uint64_t{1} << ASSAY_F32 | std::uint64_t{1} << ASSAY_F16 |
                                  std::uint64_t{1} << ASSAY_BF16;

constexpr Image kImageData{
    .id = IMAGE_ID,
    .kv_dtypes = kFloats,
    .default_kv_dtype = ASSAY_F16,
    .default_page_tokens = 32,
    .page_step = 16,
    .max_page_tokens = 256,
    .min_head_dim = 16,
    .max_head_dim = 256,
    .max_latent_dim = 0,
    .max_index_head_dim = 0,
    .device_kind = "cuda",
    .io_dtypes = kFloats,
    .classes = 1U << ASSAY_ATTN_GQA,
};

constexpr assay_attn_cap kGqa{
    .size = sizeof(assay_attn_cap),
    .attn_class = ASSAY_ATTN_GQA,
    .min_arch = 80,
    .max_arch = 0,
    .max_head_dim = kImageData.max_head_dim,
    .io_dtypes = kFloats,
    .kv_dtypes = kFloats,
    .phases = ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED,
    .phases_absent = 0,
    .absent_reason = nullptr,
    .flags = ASSAY_ATTN_CAPTURABLE | ASSAY_ATTN_LSE | ASSAY_ATTN_SINK | ASSAY_ATTN_ORDERED |
             ASSAY_ATTN_WINDOW | ASSAY_ATTN_SOFTCAP,
};
constexpr const assay_attn_cap* kCaps[] = {&kGqa};

}  // namespace attention::gpu
