// glm4: GLM-4-0414, GLM-Z1, GLM-OCR (architectures.md section 11). Norms before and after each block,
// part of each head rotated, gate and up in one tensor.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

// clang-format off
constexpr TensorSpec kSandwichNorms[] = {
    {Role::post_attention_norm, "blk.{}.post_attention_norm.weight", "model.layers.{}.post_self_attn_layernorm.weight",  {Dim::hidden}, Use::vector, Shard::rep, When::always},
    {Role::ffn_norm,            "blk.{}.ffn_norm.weight",            "model.layers.{}.post_attention_layernorm.weight",  {Dim::hidden}, Use::vector, Shard::rep, When::always},
    {Role::post_ffw_norm,       "blk.{}.post_ffw_norm.weight",       "model.layers.{}.post_mlp_layernorm.weight",        {Dim::hidden}, Use::vector, Shard::rep, When::always},
};

constexpr TensorSpec kGateUp[] = {
    {Role::ffn_gate_up, "blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight", {Dim::ff2, Dim::hidden}, Use::fused, Shard::col, When::dense_layer},
};
// clang-format on

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    (void)reader.get_int("rope.dimension_count");  // never the whole head: no default would be right
    h.ropes.push_back(reader.head_rope(h, reader.has_rope_sections() ? ASSAY_ROPE_NEOX : ASSAY_ROPE_NORM));
    return h;
}

}  // namespace

const Architecture kGlm4{"glm4",
                         {kEnds, kGqa, kQkvBias<When::optional>, kSandwichNorms, kGateUp, kDenseFfn, kNextn},
                           read};

}  // namespace model::architectures
