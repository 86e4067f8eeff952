#pragma once

// What the images of "attention/1" share about one layer: its sizes after checking, and the
// page format. Images with equal layout ids read each other's pages, so the format is defined here
// and nowhere else:
//
//   plane [page][token of the page][head][entry], dense, one dtype, no padding, nothing beside it.
//
// A token's row is thus at (page * page_tokens + offset) * row_entries: at `slot` rows from the
// base.

#include "cxx/plugin.hpp"

#include <cstdint>

namespace attention {

/// What an image offers. Static data of each image.
struct Image {
    const char* id;
    std::uint64_t kv_dtypes;  // bit (1 << assay_dtype)
    std::int32_t default_kv_dtype;
    std::uint32_t default_page_tokens, page_step, max_page_tokens;
    std::int32_t min_head_dim, max_head_dim;  // GQA
    std::int32_t max_latent_dim;              // MLA: kv_lora_rank + qk_rope_head_dim
    std::int32_t max_index_head_dim;
    const char* device_kind = "cpu";
    std::uint64_t io_dtypes = std::uint64_t{1} << ASSAY_F32;
    /// Bit (1 << assay_attn_class) of the classes that are served.
    std::uint32_t classes =
        1U << ASSAY_ATTN_GQA | 1U << ASSAY_ATTN_MLA | 1U << ASSAY_ATTN_MLA_DSA;
};

/// The pages' dtype and size, chosen from a configuration.
struct Cache {
    std::int32_t dtype;  // of k, v and latent; index_k is always f32
    std::int64_t page_tokens;
};

/// One layer, checked. MLA is grouped attention with one key head whose value is the key's first
/// value_dim entries.
struct Layer {
    std::int32_t attn_class, index_role;
    std::int64_t num_q_heads, num_kv_heads, group;  // group = num_q_heads / num_kv_heads
    std::int64_t key_dim, value_dim;
    std::int64_t index_n_heads, index_head_dim, index_topk;
    std::int32_t window;
    float scale, softcap;
    bool has_sinks;

    [[nodiscard]] bool is_mla() const noexcept { return attn_class != ASSAY_ATTN_GQA; }
    [[nodiscard]] bool is_sparse() const noexcept { return attn_class == ASSAY_ATTN_MLA_DSA; }
    [[nodiscard]] bool has_index() const noexcept { return index_role == ASSAY_INDEX_FULL; }
    /// Entries per token of the plane of keys, and of that of values (GQA).
    [[nodiscard]] std::int64_t key_row() const noexcept { return num_kv_heads * key_dim; }
    [[nodiscard]] std::int64_t value_row() const noexcept { return num_kv_heads * value_dim; }
};

/// The number of planes of a layer, and the place of the index keys among them.
[[nodiscard]] inline std::uint32_t num_planes(const Layer& layer) noexcept {
    return layer.is_mla() ? (layer.has_index() ? 2U : 1U) : 2U;
}
constexpr std::uint32_t kIndexPlane = 1;

/// Throws sdk::Error with the first condition that fails: UNSUPPORTED for what the image does not
/// offer, INVALID for what no image could.
[[nodiscard]] Cache resolve_cache(const Image& image, const assay_attn_config& config);
[[nodiscard]] Layer resolve_layer(const Image& image, const assay_attn_layer& layer);
void check_phase(std::int32_t phase);

/// Fills id, page_tokens and planes. Ids: "gqa.h<Hkv>.d<D>[v<Dv>].<dtype>.p<page>/1",
/// "mla.<L+R>.<dtype>.p<page>/1" (DSA layers without index keys too),
/// "mla-dsa.<L+R>.<dtype>.i<index_head_dim>.f32.p<page>/1".
void fill_layout(const Layer& layer, const Cache& cache, assay_kv_layout& out);

}  // namespace attention
