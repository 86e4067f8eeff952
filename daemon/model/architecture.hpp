#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/metadata.hpp"
#include "daemon/model/hparams.hpp"

namespace model {

/// What a tensor is for. One name per parameter of the transformer, whatever the file calls it.
enum class Role : std::uint8_t {
    // whole model
    token_embd, output_norm, output, output_bias, rope_freqs, rope_factors_long, rope_factors_short,
    // attention
    attn_norm, attn_qkv, attn_qkv_bias, attn_q, attn_k, attn_v, attn_q_bias, attn_k_bias, attn_v_bias,
    attn_q_norm, attn_k_norm, attn_sinks, attn_output, attn_output_bias, post_attention_norm,
    attn_rot_embd,
    // multi-head latent attention
    attn_q_a, attn_q_a_norm, attn_q_b, attn_kv_a, attn_kv_a_norm, attn_k_b, attn_v_b, attn_kv_b,
    // sparse-attention indexer
    index_q_b, index_k, index_k_norm, index_k_norm_bias, index_weights,
    // feed-forward
    ffn_norm, ffn_gate_up, ffn_gate, ffn_up, ffn_down, ffn_gate_bias, ffn_up_bias, ffn_down_bias,
    post_ffw_norm,
    router, router_bias,  // router_bias takes part in the choice of experts only
    router_logits_bias, ffn_gate_up_exps, ffn_gate_exps, ffn_up_exps, ffn_down_exps,
    ffn_gate_up_exps_bias, ffn_gate_exps_bias, ffn_up_exps_bias, ffn_down_exps_bias,
    ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp,
    // multi-token prediction: recognised, not run
    nextn_eh_proj, nextn_enorm, nextn_hnorm, nextn_shared_head_norm, nextn_embed_tokens,
    nextn_shared_head_head,
    count
};
inline constexpr std::size_t kNumRoles = static_cast<std::size_t>(Role::count);

/// A size in a shape, as a function of the hyperparameters.
enum class Dim : std::uint8_t {
    none, hidden, hidden2, vocab, rot_half,
    q_rows, k_rows, v_rows, qkv_rows, o_cols, head_dim,  // H*d, Hkv*d, Hkv*dv, their sum, H*dv, d
    q_lora, kv_lora, kv_a_rows, kv_b_rows, nope, v_head, heads,
    index_q_rows, index_dim, index_heads,
    ff, ff2, experts, ff_exp, ff_exp2, ff_shexp  // ff2, ff_exp2: gate and up
};

/// How a tensor is used; it decides which call a quant plugin must support for it.
enum class Use : std::uint8_t {
    rows,     ///< gathered by token id
    matmul,   ///< [N, K]
    batched,  ///< [heads, N, K], one product per head
    grouped,  ///< [experts, N, K]
    vector,   ///< widened to f32 at load: norms, biases ([n], or [experts, n])
    fused,    ///< holds other parameters (fused_tensors.hpp), which are cut out of it at load
    kv_b,     ///< split into attn_k_b and attn_v_b at load, or compared with them (kv_b.hpp)
    skipped   ///< recognised and not loaded
};

/// How a tensor is cut for tensor parallelism (architectures.md 0.2).
enum class Shard : std::uint8_t { rep, col, row, head3, exp, vocab };

/// When a tensor must be there.
enum class When : std::uint8_t {
    always, optional, dense_layer, moe_layer, shared_expert_layer, index_full_layer, with_q_lora,
    without_q_lora, split_kv_b, merged_kv_b, biased_router_layer, nextn_optional, longrope
};

enum class Need : std::uint8_t { required, optional, unexpected };

/// One row of an architecture: everything that is known about one tensor.
struct TensorSpec {
    Role role;
    const char* gguf;  ///< "{}" stands for the layer
    const char* hf;    ///< the parameter in the Hugging Face checkpoint; "{e}" for the expert
    std::array<Dim, 3> shape;  ///< outermost first; Dim::none ends it
    Use use;
    Shard shard;
    When when;
    bool precise = false;  ///< multiply without rounding the input below f32: choices flip otherwise

    [[nodiscard]] bool is_layer() const { return std::string_view{gguf}.find("{}") != std::string_view::npos; }
};

class HparamReader;

/// An architecture: a table of tensors, made of shared fragments, and a reader of its metadata.
/// The one list that loading, audit, planning and sharding use.
struct Architecture {
    const char* name;  ///< general.architecture
    std::vector<std::span<const TensorSpec>> fragments;
    /// Throws base::ModelError naming key, expected and found.
    Hparams (*read)(const HparamReader& reader);

    /// The row of a role; null when the architecture has none.
    [[nodiscard]] const TensorSpec* spec(Role role) const;
};

/// Null when unknown.
[[nodiscard]] const Architecture* find_architecture(std::string_view name);
[[nodiscard]] std::vector<std::string_view> architecture_names();

/// The size that `dim` stands for; 0 when the model has none.
[[nodiscard]] std::int64_t size_of(Dim dim, const Hparams& hparams);
/// Whether a whole-model tensor must be there.
[[nodiscard]] Need need_of(When when, const Hparams& hparams);
/// Whether `when` holds for `layer` (of block_count, NextN included).
[[nodiscard]] Need need_of(When when, const Hparams& hparams, std::int64_t layer);
/// How exactly a product with this tensor reads its input, as ASSAY_MM_* flags: PRECISE where the
/// product makes a choice, FINE elsewhere in models that make any (of experts, of index positions).
[[nodiscard]] std::uint32_t precision_flags(const TensorSpec& spec, const Hparams& hparams);
/// What is added to the product with this tensor; Role::count when nothing ever is.
[[nodiscard]] Role bias_of(Role role);
/// "blk.3.attn_q.weight".
[[nodiscard]] std::string tensor_name(const TensorSpec& spec, std::int64_t layer);
/// "[4096, 1024]", outermost first.
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

// ---- what readers of several architectures share -------------------------------------------------

/// The shape of a tensor of the file, outermost first; null when the file does not have it.
using ShapeLookup = std::function<const std::vector<std::int64_t>*(std::string_view name)>;

/// What a reader knows of a file: its metadata, whose keys are `<arch>.<suffix>`, and, where they say
/// too little, which tensors it has and of which shape.
class HparamReader {
public:
    /// Takes the architecture from general.architecture. Without `shapes` the file has no tensors.
    explicit HparamReader(const base::Metadata& metadata, ShapeLookup shapes = {})
        : metadata_{metadata}, arch_{metadata.get_string("general.architecture")}, shapes_{std::move(shapes)} {}

    /// Sizes, norms and heads that every architecture has (architectures.md 1.1), GQA form.
    [[nodiscard]] Hparams common() const;
    /// num_experts and the router's rule; the defaults hold when the file has no key.
    void read_moe(Hparams& hparams, std::int32_t default_gating, bool default_normalize = false) const;
    /// rope.* into one RopeParams of the given style. Refuses an n_rot that is not even and positive.
    [[nodiscard]] RopeParams rope(std::int64_t n_rot, std::int32_t style) const;
    /// The same for heads of which rope.dimension_count dimensions rotate; all when there is no key.
    [[nodiscard]] RopeParams head_rope(const Hparams& hparams, std::int32_t style) const;
    /// Whether the file's RoPE has a section for each axis of an image (M-RoPE). In text all axes count
    /// alike, so that the pairing alone differs: it is half-split.
    [[nodiscard]] bool has_rope_sections() const;
    /// attention.sliding_window into the layers that slide, of every `period` all but the last; the
    /// file may give another period or say it layer by layer. Does nothing without a window.
    void read_windows(Hparams& hparams, std::int64_t default_period) const;

    [[nodiscard]] std::int64_t get_int(std::string_view suffix) const;
    [[nodiscard]] std::int64_t int_or(std::string_view suffix, std::int64_t fallback) const;
    [[nodiscard]] double float_or(std::string_view suffix, double fallback) const;
    /// Refuses what is not positive, and what is so small or large that its powers or quotients overflow.
    [[nodiscard]] double positive_float_or(std::string_view suffix, double fallback) const;
    [[nodiscard]] bool bool_or(std::string_view suffix, bool fallback) const;
    [[nodiscard]] std::string key(std::string_view suffix) const;
    [[nodiscard]] const base::Metadata& metadata() const { return metadata_; }
    /// Null when the file does not have the tensor.
    [[nodiscard]] const std::vector<std::int64_t>* shape(std::string_view tensor) const {
        return shapes_ ? shapes_(tensor) : nullptr;
    }

private:
    /// An integer, or an array with an item per layer, all equal.
    [[nodiscard]] std::int64_t uniform_int(std::string_view suffix, std::int64_t fallback) const;
    /// The items of the trunk's layers: the file has them with or without those of the NextN blocks.
    [[nodiscard]] std::vector<std::int64_t> per_layer(const std::string& key, std::vector<std::int64_t> items) const;

    const base::Metadata& metadata_;
    std::string arch_;
    ShapeLookup shapes_;
};

}  // namespace model
