#include "daemon/model/architectures/mla.hpp"

#include <cmath>

#include "daemon/base/error.hpp"

namespace model::architectures {
namespace {

constexpr std::int64_t kMaxRank = 1 << 16;

std::int64_t positive(const HparamReader& reader, std::string_view suffix, std::int64_t value,
                      std::int64_t high = kMaxRank) {
    if (value < 1 || value > high)
        throw base::ModelError{"metadata key \"" + reader.key(suffix) + "\": expected 1 to " +
                               std::to_string(high) + ", found " + std::to_string(value)};
    return value;
}

}  // namespace

void read_mla(const HparamReader& reader, Hparams& h) {
    h.attn_class = ASSAY_ATTN_MLA;
    h.q_lora_rank = reader.int_or("attention.q_lora_rank", 0);
    if (h.q_lora_rank != 0) positive(reader, "attention.q_lora_rank", h.q_lora_rank);
    h.kv_lora_rank = positive(reader, "attention.kv_lora_rank", reader.get_int("attention.kv_lora_rank"));
    h.qk_rope_head_dim =
        positive(reader, "rope.dimension_count", reader.get_int("rope.dimension_count"));
    h.head_dim =
        positive(reader, "attention.key_length_mla", reader.get_int("attention.key_length_mla"));
    h.v_head_dim =
        positive(reader, "attention.value_length_mla", reader.get_int("attention.value_length_mla"));
    h.qk_nope_head_dim = h.head_dim - h.qk_rope_head_dim;
    if (h.qk_nope_head_dim < 1 || h.qk_rope_head_dim % 2 != 0)
        throw base::ModelError{"metadata key \"" + reader.key("attention.key_length_mla") +
                               "\": expected more than rope.dimension_count " +
                               std::to_string(h.qk_rope_head_dim) + " (even), found " +
                               std::to_string(h.head_dim)};
    const std::int64_t latent = h.kv_lora_rank + h.qk_rope_head_dim;
    if (const auto key_length = reader.int_or("attention.key_length", latent); key_length != latent)
        throw base::ModelError{"metadata key \"" + reader.key("attention.key_length") + "\": expected " +
                               std::to_string(latent) + " (kv_lora_rank + rope.dimension_count), found " +
                               std::to_string(key_length)};
    if (const auto length = reader.int_or("attention.value_length", h.kv_lora_rank); length != h.kv_lora_rank)
        throw base::ModelError{"metadata key \"" + reader.key("attention.value_length") + "\": expected " +
                               std::to_string(h.kv_lora_rank) + " (kv_lora_rank), found " + std::to_string(length)};
    h.num_kv_heads = 1;

    RopeParams rope = reader.rope(h.qk_rope_head_dim, ASSAY_ROPE_NORM);
    h.softmax_scale = 1.0 / std::sqrt(static_cast<double>(h.head_dim));
    if (rope.scaling == RopeScaling::yarn) {
        // The key holds 0.1 * mscale_all_dim; cos and sin are not scaled for these models (2.5).
        if (reader.float_or("rope.scaling.yarn_log_multiplier", 0.0) == 0.0)
            throw base::ModelError{"metadata key \"" + reader.key("rope.scaling.yarn_log_multiplier") +
                                   "\" is missing, and without it the softmax scale of a YaRN model "
                                   "cannot be known; convert the model again"};
        const double multiplier = reader.positive_float_or("rope.scaling.yarn_log_multiplier", 0.0);
        const double gain = rope.factor > 1.0 ? 1.0 + multiplier * std::log(rope.factor) : 1.0;
        h.softmax_scale *= gain * gain;
        rope.magnitude = 1.0;
    }
    h.ropes.push_back(rope);
}

void read_indexer(const HparamReader& reader, Hparams& h, std::int32_t rope_style) {
    h.attn_class = ASSAY_ATTN_MLA_DSA;
    // The indexer's queries are made from the low-rank query.
    positive(reader, "attention.q_lora_rank", h.q_lora_rank);
    h.index_n_heads = positive(reader, "attention.indexer.head_count",
                               reader.get_int("attention.indexer.head_count"));
    h.index_head_dim = positive(reader, "attention.indexer.key_length",
                                reader.get_int("attention.indexer.key_length"));
    h.index_topk =
        positive(reader, "attention.indexer.top_k", reader.get_int("attention.indexer.top_k"), 1 << 24);
    h.index_rope_style = rope_style;
    if (h.index_head_dim < h.qk_rope_head_dim)
        throw base::ModelError{"metadata key \"" + reader.key("attention.indexer.key_length") +
                               "\": expected at least rope.dimension_count " +
                               std::to_string(h.qk_rope_head_dim) + ", found " +
                               std::to_string(h.index_head_dim)};

    for (LayerParams& layer : h.layers) layer.index_role = ASSAY_INDEX_FULL;
    const std::string key = reader.key("attention.indexer.types");
    if (const auto types = reader.metadata().find_ints(key)) {
        const auto count = static_cast<std::int64_t>(types->size());
        if (count != h.num_layers && count != h.num_layers + h.num_nextn_layers)
            throw base::ModelError{"metadata key \"" + key + "\": expected " +
                                   std::to_string(h.num_layers) + " items, found " + std::to_string(count)};
        for (std::size_t l = 0; l < h.layers.size(); ++l)
            h.layers[l].index_role = (*types)[l] != 0 ? ASSAY_INDEX_FULL : ASSAY_INDEX_SHARED;
    } else if (h.context_length >= 1'048'576) {
        // GLM-5.2 files from before the key existed: layers 0, 1 and every fourth from 2 (4.5).
        for (std::size_t l = 0; l < h.layers.size(); ++l)
            h.layers[l].index_role = l <= 1 || l % 4 == 2 ? ASSAY_INDEX_FULL : ASSAY_INDEX_SHARED;
    }
    if (h.layers.front().index_role != ASSAY_INDEX_FULL)
        throw base::ModelError{"metadata key \"" + key +
                               "\": layer 0 must have an index of its own (true), found false"};
}

}  // namespace model::architectures
