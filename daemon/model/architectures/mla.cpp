#include "daemon/model/architectures/mla.hpp"

#include <cmath>

#include "daemon/base/error.hpp"

namespace model::architectures {
namespace {

constexpr std::int64_t kMaxRank = 1 << 16;

[[noreturn]] void refuse(const HparamReader& reader, std::string_view suffix, const std::string& expected,
                         std::int64_t found) {
    throw base::ModelError{"metadata key \"" + reader.key(suffix) + "\": expected " + expected + ", found " +
                           std::to_string(found)};
}

std::int64_t positive(const HparamReader& reader, std::string_view suffix, std::int64_t value,
                      std::int64_t high = kMaxRank) {
    if (value < 1 || value > high) refuse(reader, suffix, "1 to " + std::to_string(high), value);
    return value;
}

/// Rows of a matrix of layer 0; 0 when the file does not have it.
std::int64_t rows_of(const HparamReader& reader, std::string_view tensor) {
    const auto* shape = reader.shape("blk.0." + std::string{tensor} + ".weight");
    return shape == nullptr || shape->empty() ? 0 : shape->front();
}

/// Whether the query is low-rank is told by its tensor: some files lack the key or say 0.
void read_query_rank(const HparamReader& reader, Hparams& h) {
    h.q_lora_rank = reader.int_or("attention.q_lora_rank", 0);
    if (h.q_lora_rank == 0) h.q_lora_rank = rows_of(reader, "attn_q_a");
    if (h.q_lora_rank != 0) positive(reader, "attention.q_lora_rank", h.q_lora_rank);
}

/// Current files hold the sizes of a head in keys of their own, and key_length and value_length are
/// those of the latent cache; older ones have no such keys, and the two are those of a head.
void read_head_sizes(const HparamReader& reader, Hparams& h) {
    const std::int64_t latent = h.kv_lora_rank + h.qk_rope_head_dim;
    const bool has_key = reader.int_or("attention.key_length_mla", 0) != 0;
    const bool has_value = reader.int_or("attention.value_length_mla", 0) != 0;
    if (has_key != has_value)
        throw base::ModelError{"metadata key \"" +
                               reader.key(has_key ? "attention.value_length_mla" : "attention.key_length_mla") +
                               "\" is missing, and the file has the other of the two"};
    const char* const key = has_key ? "attention.key_length_mla" : "attention.key_length";
    const char* const value = has_key ? "attention.value_length_mla" : "attention.value_length";
    h.head_dim = positive(reader, key, reader.get_int(key));
    h.v_head_dim = positive(reader, value, reader.get_int(value));
    if (has_key) {
        if (const auto n = reader.int_or("attention.key_length", latent); n != latent)
            refuse(reader, "attention.key_length",
                   std::to_string(latent) + " (kv_lora_rank + rope.dimension_count)", n);
        if (const auto n = reader.int_or("attention.value_length", h.kv_lora_rank); n != h.kv_lora_rank)
            refuse(reader, "attention.value_length", std::to_string(h.kv_lora_rank) + " (kv_lora_rank)", n);
    }
    // A latent size mistaken for that of a head gives a wrong softmax scale: the query's rows tell.
    const std::int64_t rows = rows_of(reader, h.q_lora_rank > 0 ? "attn_q_b" : "attn_q");
    if (rows != 0 && rows != h.num_q_heads * h.head_dim)
        refuse(reader, key, std::to_string(rows) + " rows of the query over " + std::to_string(h.num_q_heads) + " heads",
               h.head_dim);
    h.qk_nope_head_dim = h.head_dim - h.qk_rope_head_dim;
    if (h.qk_nope_head_dim < 1 || h.qk_rope_head_dim % 2 != 0)
        refuse(reader, key,
               "more than rope.dimension_count " + std::to_string(h.qk_rope_head_dim) + " (even)", h.head_dim);
}

}  // namespace

void read_mla(const HparamReader& reader, Hparams& h) {
    h.attn_class = ASSAY_ATTN_MLA;
    h.kv_lora_rank = positive(reader, "attention.kv_lora_rank", reader.get_int("attention.kv_lora_rank"));
    h.qk_rope_head_dim =
        positive(reader, "rope.dimension_count", reader.get_int("rope.dimension_count"));
    read_query_rank(reader, h);
    read_head_sizes(reader, h);
    h.num_kv_heads = 1;
    h.has_split_kv_b = rows_of(reader, "attn_k_b") != 0 || rows_of(reader, "attn_kv_b") == 0;
    if (!h.has_split_kv_b)
        h.notes.emplace_back("attn_kv_b of an older converter: it is split into attn_k_b and attn_v_b at load");
    else if (rows_of(reader, "attn_kv_b") != 0)
        h.notes.emplace_back("attn_kv_b beside attn_k_b and attn_v_b: they are compared at load");

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
        refuse(reader, "attention.indexer.key_length",
               "at least rope.dimension_count " + std::to_string(h.qk_rope_head_dim), h.index_head_dim);

    for (LayerParams& layer : h.layers) layer.index_role = ASSAY_INDEX_FULL;
    const auto types = reader.metadata().find_ints(reader.key("attention.indexer.types"));
    if (!types) return;
    const auto count = static_cast<std::int64_t>(types->size());
    if (count != h.num_layers && count != h.num_layers + h.num_nextn_layers)
        throw base::ModelError{"metadata key \"" + reader.key("attention.indexer.types") + "\": expected " +
                               std::to_string(h.num_layers) + " items, found " + std::to_string(count)};
    for (std::size_t l = 0; l < h.layers.size(); ++l)
        h.layers[l].index_role = (*types)[l] != 0 ? ASSAY_INDEX_FULL : ASSAY_INDEX_SHARED;
}

void require_first_index(const HparamReader& reader, const Hparams& h) {
    if (h.layers.front().index_role != ASSAY_INDEX_FULL)
        throw base::ModelError{"metadata key \"" + reader.key("attention.indexer.types") +
                               "\": layer 0 must have an index of its own (true), found false"};
}

}  // namespace model::architectures
