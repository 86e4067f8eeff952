#include "daemon/model/architecture.hpp"

#include <algorithm>
#include <cmath>

#include "daemon/base/error.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model {

const Architecture* find_architecture(std::string_view name) {
    for (const Architecture* a : architectures::all())
        if (name == a->name) return a;
    return nullptr;
}

std::vector<std::string_view> architecture_names() {
    std::vector<std::string_view> names;
    for (const Architecture* a : architectures::all()) names.emplace_back(a->name);
    return names;
}

const TensorSpec* Architecture::spec(Role role) const {
    for (const auto fragment : fragments)
        for (const TensorSpec& row : fragment)
            if (row.role == role) return &row;
    return nullptr;
}

std::int64_t size_of(Dim dim, const Hparams& h) {
    switch (dim) {
        case Dim::none: return 0;
        case Dim::hidden: return h.hidden_size;
        case Dim::hidden2: return 2 * h.hidden_size;
        case Dim::vocab: return h.vocab_size;
        case Dim::rot_half: return h.ropes.empty() ? 0 : h.ropes.front().n_rot / 2;
        case Dim::q_rows: return h.num_q_heads * h.head_dim;
        case Dim::k_rows: return h.num_kv_heads * h.head_dim;
        case Dim::v_rows: return h.num_kv_heads * h.v_head_dim;
        case Dim::qkv_rows:
            return (h.num_q_heads + h.num_kv_heads) * h.head_dim + h.num_kv_heads * h.v_head_dim;
        case Dim::o_cols: return h.num_q_heads * h.v_head_dim;
        case Dim::head_dim: return h.head_dim;
        case Dim::q_lora: return h.q_lora_rank;
        case Dim::kv_lora: return h.kv_lora_rank;
        case Dim::kv_a_rows: return h.kv_lora_rank + h.qk_rope_head_dim;
        case Dim::kv_b_rows: return h.num_q_heads * (h.qk_nope_head_dim + h.v_head_dim);
        case Dim::nope: return h.qk_nope_head_dim;
        case Dim::v_head: return h.v_head_dim;
        case Dim::heads: return h.num_q_heads;
        case Dim::index_q_rows: return h.index_n_heads * h.index_head_dim;
        case Dim::index_dim: return h.index_head_dim;
        case Dim::index_heads: return h.index_n_heads;
        case Dim::ff: return h.intermediate_size;
        case Dim::ff2: return 2 * h.intermediate_size;
        case Dim::experts: return h.num_experts;
        case Dim::ff_exp: return h.moe_intermediate_size;
        case Dim::ff_exp2: return 2 * h.moe_intermediate_size;
        case Dim::ff_shexp: return h.moe_intermediate_size * h.num_shared_experts;
    }
    return 0;
}

Need need_of(When when, const Hparams& h) {
    if (when == When::longrope && !h.ropes.empty() && h.ropes.front().scaling == RopeScaling::longrope)
        return Need::required;
    return when == When::always ? Need::required : Need::optional;
}

Need need_of(When when, const Hparams& h, std::int64_t layer) {
    const bool is_nextn = layer >= h.num_layers;
    const auto required_if = [](bool condition) {
        return condition ? Need::required : Need::unexpected;
    };
    if (when == When::nextn_optional) return is_nextn ? Need::optional : Need::unexpected;
    if (is_nextn) return Need::optional;  // skipped: a trunk-only file may lack any of them
    const LayerParams& params = h.layers[static_cast<std::size_t>(layer)];
    switch (when) {
        case When::always: return Need::required;
        case When::dense_layer: return required_if(!params.is_moe);
        case When::moe_layer: return required_if(params.is_moe);
        case When::shared_expert_layer: return required_if(params.is_moe && h.num_shared_experts > 0);
        case When::index_full_layer:
            // Some files carry copies on shared layers; they are not part of the model.
            return params.index_role == ASSAY_INDEX_FULL ? Need::required : Need::optional;
        case When::with_q_lora: return required_if(h.q_lora_rank > 0);
        case When::without_q_lora: return required_if(h.q_lora_rank == 0);
        case When::split_kv_b: return required_if(h.has_split_kv_b);
        // Files of some converters have both forms.
        case When::merged_kv_b: return h.has_split_kv_b ? Need::optional : Need::required;
        case When::biased_router_layer: return required_if(params.is_moe && h.has_router_bias);
        default: return Need::optional;
    }
}

std::uint32_t precision_flags(const TensorSpec& spec, const Hparams& h) {
    if (spec.precise) return ASSAY_MM_PRECISE;
    return h.num_experts > 0 || h.attn_class == ASSAY_ATTN_MLA_DSA ? ASSAY_MM_FINE : 0U;
}

Role bias_of(Role role) {
    switch (role) {
        case Role::attn_q: return Role::attn_q_bias;
        case Role::attn_k: return Role::attn_k_bias;
        case Role::attn_v: return Role::attn_v_bias;
        case Role::attn_output: return Role::attn_output_bias;
        case Role::ffn_gate: return Role::ffn_gate_bias;
        case Role::ffn_up: return Role::ffn_up_bias;
        case Role::ffn_down: return Role::ffn_down_bias;
        case Role::router: return Role::router_logits_bias;
        case Role::ffn_gate_exps: return Role::ffn_gate_exps_bias;
        case Role::ffn_up_exps: return Role::ffn_up_exps_bias;
        case Role::ffn_down_exps: return Role::ffn_down_exps_bias;
        case Role::output: return Role::output_bias;
        default: return Role::count;
    }
}

std::string tensor_name(const TensorSpec& spec, std::int64_t layer) {
    std::string name = spec.gguf;
    if (const auto at = name.find("{}"); at != std::string::npos)
        name.replace(at, 2, std::to_string(layer));
    return name;
}

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

// ---- HparamReader -------------------------------------------------------------------------------

std::string HparamReader::key(std::string_view suffix) const {
    return arch_ + "." + std::string{suffix};
}

std::int64_t HparamReader::get_int(std::string_view suffix) const {
    return metadata_.get_int(key(suffix));
}

std::int64_t HparamReader::int_or(std::string_view suffix, std::int64_t fallback) const {
    return metadata_.find_int(key(suffix)).value_or(fallback);
}

double HparamReader::float_or(std::string_view suffix, double fallback) const {
    return metadata_.find_float(key(suffix)).value_or(fallback);
}

bool HparamReader::bool_or(std::string_view suffix, bool fallback) const {
    return metadata_.find_bool(key(suffix)).value_or(fallback);
}

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& expected, const std::string& found) {
    throw base::ModelError{"metadata key \"" + key + "\": expected " + expected + ", found " + found};
}

/// Sizes come from a stranger's file: everything later multiplies them freely, so they are bounded
/// once, here.
void check_range(const std::string& key, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high)
        refuse(key, std::to_string(low) + " to " + std::to_string(high), std::to_string(value));
}

constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxContext = 1 << 30;  // positions and slots are int32

}  // namespace

double HparamReader::positive_float_or(std::string_view suffix, double fallback) const {
    const double value = float_or(suffix, fallback);
    if (!(value >= 1e-12 && value <= 1e12))
        refuse(key(suffix), "a positive number, 1e-12 to 1e12", std::to_string(value));
    return value;
}

std::int64_t HparamReader::uniform_int(std::string_view suffix, std::int64_t fallback) const {
    const std::string name = key(suffix);
    const auto* value = metadata_.find(name);
    if (value == nullptr) return fallback;
    if (!std::holds_alternative<std::vector<std::int64_t>>(*value)) return metadata_.get_int(name);
    const auto items = per_layer(name, std::get<std::vector<std::int64_t>>(*value));
    for (const std::int64_t item : items)
        if (item != items.front())
            refuse(name, "one value for all layers",
                   std::to_string(items.front()) + " and " + std::to_string(item) +
                       "; models whose layers differ in it are not supported");
    return items.front();
}

std::vector<std::int64_t> HparamReader::per_layer(const std::string& name, std::vector<std::int64_t> items) const {
    const auto blocks = static_cast<std::size_t>(get_int("block_count"));
    const std::size_t layers = blocks - static_cast<std::size_t>(int_or("nextn_predict_layers", 0));
    if (items.size() != layers && items.size() != blocks)
        refuse(name, "an integer or " + std::to_string(layers) + " items", std::to_string(items.size()) + " items");
    items.resize(layers);
    return items;
}

Hparams HparamReader::common() const {
    Hparams h;
    h.arch = arch_;
    const auto bounded = [&](std::string_view suffix, std::int64_t value, std::int64_t low = 1,
                             std::int64_t high = kMaxSize) {
        check_range(key(suffix), value, low, high);
        return value;
    };
    const std::int64_t blocks = bounded("block_count", get_int("block_count"), 1, kMaxLayers);
    h.num_nextn_layers = bounded("nextn_predict_layers", int_or("nextn_predict_layers", 0), 0, blocks - 1);
    h.num_layers = blocks - h.num_nextn_layers;
    h.hidden_size = bounded("embedding_length", get_int("embedding_length"));
    h.context_length = bounded("context_length", get_int("context_length"), 1, kMaxContext);
    h.intermediate_size = bounded("feed_forward_length", uniform_int("feed_forward_length", 0), 0);
    h.num_q_heads = bounded("attention.head_count", uniform_int("attention.head_count", 0));
    h.num_kv_heads = bounded("attention.head_count_kv", uniform_int("attention.head_count_kv", h.num_q_heads));
    if (h.num_q_heads % h.num_kv_heads != 0)
        refuse(key("attention.head_count_kv"),
               "a divisor of attention.head_count " + std::to_string(h.num_q_heads),
               std::to_string(h.num_kv_heads));
    h.head_dim = bounded("attention.key_length",
                         int_or("attention.key_length", h.hidden_size / h.num_q_heads), 1, 1 << 16);
    h.v_head_dim = bounded("attention.value_length",
                           int_or("attention.value_length", h.hidden_size / h.num_q_heads), 1, 1 << 16);
    h.rms_eps = metadata_.get_float(key("attention.layer_norm_rms_epsilon"));
    if (!(h.rms_eps > 0.0 && h.rms_eps < 1.0))
        refuse(key("attention.layer_norm_rms_epsilon"), "a value between 0 and 1", std::to_string(h.rms_eps));
    const auto* tokens = metadata_.find_strings("tokenizer.ggml.tokens");
    h.vocab_size = int_or("vocab_size", tokens != nullptr ? static_cast<std::int64_t>(tokens->size()) : 0);
    bounded("vocab_size", h.vocab_size);
    h.softmax_scale = 1.0 / std::sqrt(static_cast<double>(h.head_dim));
    h.layers.resize(static_cast<std::size_t>(h.num_layers));
    return h;
}

void HparamReader::read_moe(Hparams& h, std::int32_t default_gating, bool default_normalize) const {
    h.num_experts = int_or("expert_count", 0);
    check_range(key("expert_count"), h.num_experts, 0, 1 << 16);
    if (h.num_experts == 0) return;
    h.num_experts_per_tok = get_int("expert_used_count");
    check_range(key("expert_used_count"), h.num_experts_per_tok, 1, h.num_experts);
    h.num_shared_experts = int_or("expert_shared_count", 0);
    check_range(key("expert_shared_count"), h.num_shared_experts, 0, 1024);
    h.moe_intermediate_size = int_or("expert_feed_forward_length", h.intermediate_size);
    check_range(key("expert_feed_forward_length"), h.moe_intermediate_size, 1, kMaxSize);
    h.leading_dense_layers = int_or("leading_dense_block_count", 0);
    check_range(key("leading_dense_block_count"), h.leading_dense_layers, 0, h.num_layers);
    const std::int64_t gating = int_or("expert_gating_func", 0);
    check_range(key("expert_gating_func"), gating, 0, 4);
    h.gating = gating == 0 ? default_gating : static_cast<std::int32_t>(gating);
    h.normalize_expert_weights = bool_or("expert_weights_norm", default_normalize);
    // 0 and no key mean the same: no scale.
    if (float_or("expert_weights_scale", 0.0) != 0.0)
        h.expert_weights_scale = positive_float_or("expert_weights_scale", 1.0);
    h.num_expert_groups = int_or("expert_group_count", 0);
    check_range(key("expert_group_count"), h.num_expert_groups, 0, h.num_experts);
    h.num_expert_groups = std::max<std::int64_t>(1, h.num_expert_groups);
    h.num_expert_groups_used = int_or("expert_group_used_count", 0);
    // One group is no limit, and then 0 and no key are as good as 1.
    check_range(key("expert_group_used_count"), h.num_expert_groups_used, h.num_expert_groups > 1 ? 1 : 0,
                h.num_expert_groups);
    h.num_expert_groups_used = std::max<std::int64_t>(1, h.num_expert_groups_used);
    if (h.num_experts % h.num_expert_groups != 0)
        refuse(key("expert_group_count"), "a divisor of expert_count " + std::to_string(h.num_experts),
               std::to_string(h.num_expert_groups));
    const std::int64_t eligible = h.num_experts / h.num_expert_groups * h.num_expert_groups_used;
    if (h.num_experts_per_tok > eligible)
        refuse(key("expert_used_count"),
               "at most the " + std::to_string(eligible) + " experts of expert_group_used_count groups",
               std::to_string(h.num_experts_per_tok));
    for (std::size_t l = 0; l < h.layers.size(); ++l)
        h.layers[l].is_moe = static_cast<std::int64_t>(l) >= h.leading_dense_layers;
}

RopeParams HparamReader::rope(std::int64_t n_rot, std::int32_t style) const {
    if (n_rot < 2 || n_rot > 1 << 16 || n_rot % 2 != 0)
        refuse(key("rope.dimension_count"), "an even number, 2 to 65536", std::to_string(n_rot));
    RopeParams r;
    r.n_rot = n_rot;
    r.style = style;
    r.theta = positive_float_or("rope.freq_base", 10000.0);
    const double factor = float_or("rope.scaling.factor", float_or("rope.scale_linear", 1.0));
    if (factor != 0.0) {
        const bool has_key = metadata_.contains(key("rope.scaling.factor"));
        r.factor = positive_float_or(has_key ? "rope.scaling.factor" : "rope.scale_linear", 1.0);
    }
    const auto* type = metadata_.find_string(key("rope.scaling.type"));
    const std::string name = type != nullptr ? *type : (r.factor != 1.0 ? "linear" : "none");
    const auto context = static_cast<double>(get_int("context_length"));
    r.original_context = positive_float_or("rope.scaling.original_context_length", context);
    if (name == "none") {
        r.scaling = RopeScaling::none;
    } else if (name == "linear") {
        r.scaling = RopeScaling::linear;
    } else if (name == "yarn") {
        r.scaling = RopeScaling::yarn;
        r.beta_fast = positive_float_or("rope.scaling.yarn_beta_fast", 32.0);
        r.beta_slow = positive_float_or("rope.scaling.yarn_beta_slow", 1.0);
        if (!(r.theta > 1.0)) refuse(key("rope.freq_base"), "more than 1 with YaRN", std::to_string(r.theta));
        r.extrapolation = float_or("rope.scaling.yarn_ext_factor", 1.0);
        if (!(r.extrapolation >= 0.0 && r.extrapolation <= 1.0))
            refuse(key("rope.scaling.yarn_ext_factor"), "0 to 1", std::to_string(r.extrapolation));
        // The key holds the config's attention_factor, which replaces the gain (1.4).
        r.magnitude = positive_float_or("rope.scaling.yarn_attn_factor", yarn_gain(r.factor, 1.0));
    } else if (name == "longrope") {
        r.scaling = RopeScaling::longrope;
        // attn_factor, read below, replaces what follows from the two contexts.
        if (!metadata_.contains(key("rope.scaling.attn_factor")))
            r.magnitude = longrope_gain(context / r.original_context, r.original_context);
    } else {
        refuse(key("rope.scaling.type"), "none, linear, yarn or longrope", "\"" + name + "\"");
    }
    r.magnitude *= positive_float_or("rope.scaling.attn_factor", 1.0);
    return r;
}

RopeParams HparamReader::head_rope(const Hparams& h, std::int32_t style) const {
    const std::int64_t n_rot = int_or("rope.dimension_count", h.head_dim);
    if (n_rot > h.head_dim)
        refuse(key("rope.dimension_count"), "at most the head size " + std::to_string(h.head_dim),
               std::to_string(n_rot));
    return rope(n_rot, style);
}

bool HparamReader::has_rope_sections() const {
    const auto sections = metadata_.find_ints(key("rope.dimension_sections"));
    return sections && std::any_of(sections->begin(), sections->end(), [](auto n) { return n != 0; });
}

void HparamReader::read_windows(Hparams& h, std::int64_t default_period) const {
    const std::int64_t window = int_or("attention.sliding_window", 0);
    check_range(key("attention.sliding_window"), window, 0, kMaxContext);
    if (window == 0) return;
    const std::string pattern = key("attention.sliding_window_pattern");
    const auto* value = metadata_.find(pattern);
    const bool is_list = value != nullptr && !std::holds_alternative<std::int64_t>(*value);
    const std::vector<std::int64_t> list =
        is_list ? per_layer(pattern, metadata_.find_ints(pattern).value()) : std::vector<std::int64_t>{};
    const std::int64_t period = is_list ? 1 : int_or("attention.sliding_window_pattern", default_period);
    check_range(pattern, period, 1, kMaxLayers);
    for (std::size_t l = 0; l < h.layers.size(); ++l) {
        const bool slides = is_list ? list[l] != 0 : static_cast<std::int64_t>(l) % period < period - 1;
        if (slides) h.layers[l].window = static_cast<std::int32_t>(window);
    }
}

}  // namespace model
