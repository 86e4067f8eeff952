#pragma once

#include "daemon/model/architecture.hpp"

namespace model::architectures {

// Tables that several architectures share, from architectures.md sections 2.1, 3.2, 4.2, 6.1, 7.2.
// clang-format off

inline constexpr TensorSpec kEnds[] = {
    {Role::token_embd,  "token_embd.weight",  "model.embed_tokens.weight", {Dim::vocab, Dim::hidden}, Use::rows,   Shard::rep,   When::always},
    {Role::output_norm, "output_norm.weight", "model.norm.weight",         {Dim::hidden},             Use::vector, Shard::rep,   When::always},
    // Missing: tied to token_embd.
    {Role::output,      "output.weight",      "lm_head.weight",            {Dim::vocab, Dim::hidden}, Use::matmul, Shard::vocab, When::optional},
};

inline constexpr TensorSpec kRopeFactors[] = {
    {Role::rope_freqs,         "rope_freqs.weight",         "", {Dim::rot_half}, Use::vector, Shard::rep, When::optional},
    {Role::rope_factors_long,  "rope_factors_long.weight",  "", {Dim::rot_half}, Use::vector, Shard::rep, When::longrope},
    {Role::rope_factors_short, "rope_factors_short.weight", "", {Dim::rot_half}, Use::vector, Shard::rep, When::longrope},
};

inline constexpr TensorSpec kGqa[] = {
    {Role::attn_norm,   "blk.{}.attn_norm.weight",   "model.layers.{}.input_layernorm.weight",  {Dim::hidden},              Use::vector, Shard::rep, When::always},
    {Role::attn_qkv,    "blk.{}.attn_qkv.weight",    "model.layers.{}.self_attn.qkv_proj.weight", {Dim::qkv_rows, Dim::hidden}, Use::fused, Shard::col, When::optional},
    {Role::attn_q,      "blk.{}.attn_q.weight",      "model.layers.{}.self_attn.q_proj.weight", {Dim::q_rows, Dim::hidden}, Use::matmul, Shard::col, When::always},
    {Role::attn_k,      "blk.{}.attn_k.weight",      "model.layers.{}.self_attn.k_proj.weight", {Dim::k_rows, Dim::hidden}, Use::matmul, Shard::col, When::always},
    {Role::attn_v,      "blk.{}.attn_v.weight",      "model.layers.{}.self_attn.v_proj.weight", {Dim::v_rows, Dim::hidden}, Use::matmul, Shard::col, When::always},
    {Role::attn_output, "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", {Dim::hidden, Dim::o_cols}, Use::matmul, Shard::row, When::always},
};

/// @param when  whether every model of the architecture has biases
template <When when>
inline constexpr TensorSpec kQkvBias[] = {
    {Role::attn_qkv_bias, "blk.{}.attn_qkv.bias", "model.layers.{}.self_attn.qkv_proj.bias", {Dim::qkv_rows}, Use::fused, Shard::col, When::optional},
    {Role::attn_q_bias, "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", {Dim::q_rows}, Use::vector, Shard::col, when},
    {Role::attn_k_bias, "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", {Dim::k_rows}, Use::vector, Shard::col, when},
    {Role::attn_v_bias, "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", {Dim::v_rows}, Use::vector, Shard::col, when},
};

template <When when>
inline constexpr TensorSpec kAttnOutputBias[] = {
    {Role::attn_output_bias, "blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias", {Dim::hidden}, Use::vector, Shard::rep, when},
};

template <When when>
inline constexpr TensorSpec kQkNorm[] = {
    {Role::attn_q_norm, "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", {Dim::head_dim}, Use::vector, Shard::rep, when},
    {Role::attn_k_norm, "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", {Dim::head_dim}, Use::vector, Shard::rep, when},
};

inline constexpr TensorSpec kMla[] = {
    {Role::attn_norm,      "blk.{}.attn_norm.weight",      "model.layers.{}.input_layernorm.weight",              {Dim::hidden},                 Use::vector,  Shard::rep,   When::always},
    {Role::attn_q_a,       "blk.{}.attn_q_a.weight",       "model.layers.{}.self_attn.q_a_proj.weight",           {Dim::q_lora, Dim::hidden},    Use::matmul,  Shard::rep,   When::with_q_lora},
    {Role::attn_q_a_norm,  "blk.{}.attn_q_a_norm.weight",  "model.layers.{}.self_attn.q_a_layernorm.weight",      {Dim::q_lora},                 Use::vector,  Shard::rep,   When::with_q_lora},
    {Role::attn_q_b,       "blk.{}.attn_q_b.weight",       "model.layers.{}.self_attn.q_b_proj.weight",           {Dim::q_rows, Dim::q_lora},    Use::matmul,  Shard::col,   When::with_q_lora},
    {Role::attn_q,         "blk.{}.attn_q.weight",         "model.layers.{}.self_attn.q_proj.weight",             {Dim::q_rows, Dim::hidden},    Use::matmul,  Shard::col,   When::without_q_lora},
    {Role::attn_kv_a,      "blk.{}.attn_kv_a_mqa.weight",  "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", {Dim::kv_a_rows, Dim::hidden}, Use::matmul,  Shard::rep,   When::always},
    {Role::attn_kv_a_norm, "blk.{}.attn_kv_a_norm.weight", "model.layers.{}.self_attn.kv_a_layernorm.weight",     {Dim::kv_lora},                Use::vector,  Shard::rep,   When::always},
    {Role::attn_k_b,       "blk.{}.attn_k_b.weight",       "model.layers.{}.self_attn.kv_b_proj.weight",          {Dim::heads, Dim::kv_lora, Dim::nope},   Use::batched, Shard::head3, When::split_kv_b},
    {Role::attn_v_b,       "blk.{}.attn_v_b.weight",       "model.layers.{}.self_attn.kv_b_proj.weight",          {Dim::heads, Dim::v_head, Dim::kv_lora}, Use::batched, Shard::head3, When::split_kv_b},
    {Role::attn_kv_b,      "blk.{}.attn_kv_b.weight",      "model.layers.{}.self_attn.kv_b_proj.weight",          {Dim::kv_b_rows, Dim::kv_lora}, Use::kv_b,   Shard::col,   When::merged_kv_b},
    {Role::attn_output,    "blk.{}.attn_output.weight",    "model.layers.{}.self_attn.o_proj.weight",             {Dim::hidden, Dim::o_cols},    Use::matmul,  Shard::row,   When::always},
};

inline constexpr TensorSpec kIndexer[] = {
    {Role::index_q_b,         "blk.{}.indexer.attn_q_b.weight", "model.layers.{}.self_attn.indexer.wq_b.weight",         {Dim::index_q_rows, Dim::q_lora},  Use::matmul, Shard::rep, When::index_full_layer, true},
    {Role::index_k,           "blk.{}.indexer.attn_k.weight",   "model.layers.{}.self_attn.indexer.wk.weight",           {Dim::index_dim, Dim::hidden},     Use::matmul, Shard::rep, When::index_full_layer, true},
    {Role::index_k_norm,      "blk.{}.indexer.k_norm.weight",   "model.layers.{}.self_attn.indexer.k_norm.weight",       {Dim::index_dim},                  Use::vector, Shard::rep, When::index_full_layer},
    {Role::index_k_norm_bias, "blk.{}.indexer.k_norm.bias",     "model.layers.{}.self_attn.indexer.k_norm.bias",         {Dim::index_dim},                  Use::vector, Shard::rep, When::index_full_layer},
    {Role::index_weights,     "blk.{}.indexer.proj.weight",     "model.layers.{}.self_attn.indexer.weights_proj.weight", {Dim::index_heads, Dim::hidden},   Use::matmul, Shard::rep, When::index_full_layer, true},
};

inline constexpr TensorSpec kFfnNorm[] = {
    {Role::ffn_norm, "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", {Dim::hidden}, Use::vector, Shard::rep, When::always},
};

/// The norm between the blocks under the name that some converters give it.
inline constexpr TensorSpec kFfnNormAfterAttention[] = {
    {Role::ffn_norm, "blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight", {Dim::hidden}, Use::vector, Shard::rep, When::always},
};

inline constexpr TensorSpec kDenseFfn[] = {
    {Role::ffn_gate, "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", {Dim::ff, Dim::hidden}, Use::matmul, Shard::col, When::dense_layer},
    {Role::ffn_up,   "blk.{}.ffn_up.weight",   "model.layers.{}.mlp.up_proj.weight",   {Dim::ff, Dim::hidden}, Use::matmul, Shard::col, When::dense_layer},
    {Role::ffn_down, "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", {Dim::hidden, Dim::ff}, Use::matmul, Shard::row, When::dense_layer},
};

inline constexpr TensorSpec kDenseFfnBias[] = {
    {Role::ffn_gate_bias, "blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias", {Dim::ff},     Use::vector, Shard::col, When::optional},
    {Role::ffn_up_bias,   "blk.{}.ffn_up.bias",   "model.layers.{}.mlp.up_proj.bias",   {Dim::ff},     Use::vector, Shard::col, When::optional},
    {Role::ffn_down_bias, "blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias", {Dim::hidden}, Use::vector, Shard::rep, When::optional},
};

inline constexpr TensorSpec kExperts[] = {
    {Role::router,        "blk.{}.ffn_gate_inp.weight",  "model.layers.{}.mlp.gate.weight",                      {Dim::experts, Dim::hidden},              Use::matmul,  Shard::rep, When::moe_layer, true},
    {Role::ffn_gate_up_exps, "blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj",       {Dim::experts, Dim::ff_exp2, Dim::hidden}, Use::fused,  Shard::exp, When::moe_layer},
    {Role::ffn_gate_exps, "blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.{e}.gate_proj.weight",     {Dim::experts, Dim::ff_exp, Dim::hidden}, Use::grouped, Shard::exp, When::moe_layer},
    {Role::ffn_up_exps,   "blk.{}.ffn_up_exps.weight",   "model.layers.{}.mlp.experts.{e}.up_proj.weight",       {Dim::experts, Dim::ff_exp, Dim::hidden}, Use::grouped, Shard::exp, When::moe_layer},
    {Role::ffn_down_exps, "blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.{e}.down_proj.weight",     {Dim::experts, Dim::hidden, Dim::ff_exp}, Use::grouped, Shard::exp, When::moe_layer},
};

inline constexpr TensorSpec kRouterBias[] = {
    {Role::router_bias, "blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias", {Dim::experts}, Use::vector, Shard::rep, When::biased_router_layer},
};

inline constexpr TensorSpec kSharedExperts[] = {
    {Role::ffn_gate_shexp, "blk.{}.ffn_gate_shexp.weight", "model.layers.{}.mlp.shared_experts.gate_proj.weight", {Dim::ff_shexp, Dim::hidden}, Use::matmul, Shard::col, When::shared_expert_layer},
    {Role::ffn_up_shexp,   "blk.{}.ffn_up_shexp.weight",   "model.layers.{}.mlp.shared_experts.up_proj.weight",   {Dim::ff_shexp, Dim::hidden}, Use::matmul, Shard::col, When::shared_expert_layer},
    {Role::ffn_down_shexp, "blk.{}.ffn_down_shexp.weight", "model.layers.{}.mlp.shared_experts.down_proj.weight", {Dim::hidden, Dim::ff_shexp}, Use::matmul, Shard::row, When::shared_expert_layer},
};

inline constexpr TensorSpec kNextn[] = {
    {Role::nextn_eh_proj,          "blk.{}.nextn.eh_proj.weight",          "model.layers.{}.eh_proj.weight",          {Dim::hidden, Dim::hidden2}, Use::skipped, Shard::rep,   When::nextn_optional},
    {Role::nextn_enorm,            "blk.{}.nextn.enorm.weight",            "model.layers.{}.enorm.weight",            {Dim::hidden},               Use::skipped, Shard::rep,   When::nextn_optional},
    {Role::nextn_hnorm,            "blk.{}.nextn.hnorm.weight",            "model.layers.{}.hnorm.weight",            {Dim::hidden},               Use::skipped, Shard::rep,   When::nextn_optional},
    {Role::nextn_shared_head_norm, "blk.{}.nextn.shared_head_norm.weight", "model.layers.{}.shared_head.norm.weight", {Dim::hidden},               Use::skipped, Shard::rep,   When::nextn_optional},
    {Role::nextn_embed_tokens,     "blk.{}.nextn.embed_tokens.weight",     "model.layers.{}.embed_tokens.weight",     {Dim::vocab, Dim::hidden},   Use::skipped, Shard::rep,   When::nextn_optional},
    {Role::nextn_shared_head_head, "blk.{}.nextn.shared_head_head.weight", "model.layers.{}.shared_head.head.weight", {Dim::vocab, Dim::hidden},   Use::skipped, Shard::vocab, When::nextn_optional},
};

// clang-format on

}  // namespace model::architectures
