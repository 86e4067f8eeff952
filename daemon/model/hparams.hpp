#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/plugin.h"

namespace model {

/// longrope: nothing here; each pair is divided by a factor out of one of two tensors.
enum class RopeScaling : std::uint8_t { none, linear, yarn, longrope };

/// One way of rotating: its angles and its pairing. Angles are position * inv_freq(i), i < n_rot/2.
struct RopeParams {
    std::int64_t n_rot = 0;  ///< rotated dimensions per head
    double theta = 10000.0;
    std::int32_t style = ASSAY_ROPE_NORM;  ///< assay_rope_style
    RopeScaling scaling = RopeScaling::none;
    double factor = 1.0;              ///< F of architectures.md 1.4
    double original_context = 0.0;    ///< L0: tokens, before it was stretched
    double beta_fast = 32.0, beta_slow = 1.0;
    double extrapolation = 1.0;       ///< YaRN ext: 0 interpolates every pair
    bool truncate_range = true;       ///< YaRN correction range rounded to whole pairs
    double magnitude = 1.0;           ///< on cos and sin
    bool use_factors = false;         ///< divide by the tensors rope_freqs or rope_factors_*, if any
};

/// What differs from layer to layer.
struct LayerParams {
    bool is_moe = false;
    std::int32_t window = 0;  ///< sliding window in tokens; 0 = full attention
    std::int32_t rope = 0;    ///< index into Hparams::ropes
    std::int32_t index_role = ASSAY_INDEX_NONE;  ///< assay_index_role
};

/// The hyperparameters of a model, in the words of its config (style.md, Names), whatever the file
/// called them. Filled by the architecture's reader from metadata and tensor shapes; immutable
/// afterwards.
struct Hparams {
    std::string arch;
    std::int64_t num_layers = 0;        ///< trunk layers, without NextN
    std::int64_t num_nextn_layers = 0;  ///< trailing MTP blocks: recognised, not run
    std::int64_t hidden_size = 0;
    std::int64_t vocab_size = 0;
    std::int64_t context_length = 0;  ///< tokens, as trained
    double rms_eps = 0.0;

    // attention
    std::int32_t attn_class = ASSAY_ATTN_GQA;  ///< assay_attn_class
    std::int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
    std::int64_t q_lora_rank = 0;  ///< 0 = the query is projected directly
    std::int64_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0;
    bool has_split_kv_b = true;  ///< attn_k_b and attn_v_b; false: only attn_kv_b, which is split at load
    std::int64_t index_n_heads = 0, index_head_dim = 0, index_topk = 0;
    std::int32_t index_rope_style = ASSAY_ROPE_NORM;
    double index_norm_eps = 1e-6;  ///< LayerNorm of the index key
    double softmax_scale = 0.0;
    double attn_logit_softcap = 0.0;
    bool has_sinks = false;  ///< one logit per head joins the normalisation
    std::vector<RopeParams> ropes;

    // feed-forward
    std::int64_t intermediate_size = 0;
    std::int32_t activation = ASSAY_GLU_SILU;  ///< assay_glu
    double glu_alpha = 0.0, glu_limit = 0.0;
    std::int64_t num_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
    std::int64_t num_shared_experts = 0, leading_dense_layers = 0;
    std::int32_t gating = 0;  ///< as assay_router::gating
    bool has_router_bias = true;  ///< where the architecture has one: on every MoE layer, or on none
    bool normalize_expert_weights = false;
    double expert_weights_scale = 1.0;
    std::int64_t num_expert_groups = 1, num_expert_groups_used = 1;

    // ends
    double embedding_scale = 1.0;
    double final_logit_softcap = 0.0;

    std::vector<LayerParams> layers;  ///< [num_layers]

    /// What the reader concluded where the metadata was silent, for the audit's report.
    std::vector<std::string> notes;
};

/// inv_freq[i], i < n_rot/2, scaling applied (architectures.md 1.3, 1.4). `factors` divides, one per
/// pair; empty = none.
[[nodiscard]] std::vector<double> inverse_frequencies(const RopeParams& rope,
                                                      const std::vector<float>& factors);

/// LongRoPE's factor on cos and sin for a context stretched from `original` tokens by F:
/// sqrt(1 + ln F / ln original) for F > 1, else 1 (Ding et al., "LongRoPE", 2024).
[[nodiscard]] double longrope_gain(double factor, double original);

/// YaRN's g(F, m) = 1 + 0.1 m ln F for F > 1, else 1.
[[nodiscard]] double yarn_gain(double factor, double m);

}  // namespace model
