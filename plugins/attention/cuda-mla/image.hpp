#pragma once

// Image "cuda-mla": what it offers.

#include "../common/layer.hpp"

#define IMAGE_ID "cuda-mla"

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
    .min_head_dim = 0,
    .max_head_dim = 0,
    .max_latent_dim = 1024,
    .max_index_head_dim = 256,
    .device_kind = "cuda",
    .io_dtypes = kFloats,
    .classes = 1U << ASSAY_ATTN_MLA | 1U << ASSAY_ATTN_MLA_DSA,
};

/// Not ASSAY_ATTN_ORDERED: how keys are split follows the number of sequences, so that one sequence
/// and many both fill the device. The same batch gives the same bits.
constexpr assay_attn_cap cap(assay_attn_class attn_class, std::uint32_t flags) {
    assay_attn_cap c{};
    c.size = sizeof c;
    c.attn_class = attn_class;
    c.min_arch = 80;
    c.max_head_dim = kImageData.max_latent_dim;
    c.io_dtypes = kFloats;
    c.kv_dtypes = kFloats;
    c.phases = ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED;
    c.flags = ASSAY_ATTN_CAPTURABLE | ASSAY_ATTN_LSE | ASSAY_ATTN_SINK | ASSAY_ATTN_SOFTCAP | flags;
    return c;
}
constexpr assay_attn_cap kMla = cap(ASSAY_ATTN_MLA, ASSAY_ATTN_WINDOW);
constexpr assay_attn_cap kDsa = cap(ASSAY_ATTN_MLA_DSA, 0);
constexpr const assay_attn_cap* kCaps[] = {&kMla, &kDsa};

}  // namespace attention::gpu
