// gpt-oss (architectures.md section 13): layers that slide and layers that do not in turn, a sink for
// each head, biases everywhere, and experts with a clamped gate. What the file calls
// post_attention_norm is the norm before the feed-forward.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSoftmaxOfChosen = 3;

// clang-format off
constexpr TensorSpec kSinks[] = {
    {Role::attn_sinks, "blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks", {Dim::heads}, Use::vector, Shard::col, When::always},
};

// The checkpoint holds gate and up of an expert row by row in turn; the converter separates them.
constexpr TensorSpec kExpertBias[] = {
    {Role::router_logits_bias,    "blk.{}.ffn_gate_inp.bias",     "model.layers.{}.mlp.router.bias",                {Dim::experts},               Use::vector, Shard::rep, When::moe_layer},
    {Role::ffn_gate_up_exps_bias, "blk.{}.ffn_gate_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", {Dim::experts, Dim::ff_exp2}, Use::fused,  Shard::exp, When::moe_layer},
    {Role::ffn_gate_exps_bias,    "blk.{}.ffn_gate_exps.bias",    "model.layers.{}.mlp.experts.gate_up_proj_bias", {Dim::experts, Dim::ff_exp},  Use::vector, Shard::exp, When::moe_layer},
    {Role::ffn_up_exps_bias,      "blk.{}.ffn_up_exps.bias",      "model.layers.{}.mlp.experts.gate_up_proj_bias", {Dim::experts, Dim::ff_exp},  Use::vector, Shard::exp, When::moe_layer},
    {Role::ffn_down_exps_bias,    "blk.{}.ffn_down_exps.bias",    "model.layers.{}.mlp.experts.down_proj_bias",    {Dim::experts, Dim::hidden},  Use::vector, Shard::exp, When::moe_layer},
};
// clang-format on

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    for (const char* needed : {"attention.sliding_window", "expert_count", "expert_feed_forward_length"})
        (void)reader.get_int(needed);
    reader.read_moe(h, kSoftmaxOfChosen);
    h.activation = ASSAY_GLU_SILU_CLAMP;
    h.glu_alpha = 1.702;
    h.glu_limit = 7.0;
    h.has_sinks = true;
    reader.read_windows(h, 2);
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    h.ropes.front().truncate_range = false;  // as trained; the file has no key for it
    return h;
}

}  // namespace

const Architecture kGptOss{"gpt-oss",
                           {kEnds, kGqa, kQkvBias<When::always>, kAttnOutputBias<When::always>, kSinks,
                            kFfnNormAfterAttention, kExperts, kExpertBias},
                           read};

}  // namespace model::architectures
