// gemma3 (architectures.md section 14): of every six layers five slide and have a RoPE of their own,
// norms before and after each block, scaled embeddings, a gated unit with GELU. The converter has
// added the 1 of Gemma's norms to the weights.

#include <cmath>

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

// clang-format off
constexpr TensorSpec kSandwichNorms[] = {
    {Role::post_attention_norm, "blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight",   {Dim::hidden}, Use::vector, Shard::rep, When::always},
    {Role::ffn_norm,            "blk.{}.ffn_norm.weight",            "model.layers.{}.pre_feedforward_layernorm.weight",  {Dim::hidden}, Use::vector, Shard::rep, When::always},
    {Role::post_ffw_norm,       "blk.{}.post_ffw_norm.weight",       "model.layers.{}.post_feedforward_layernorm.weight", {Dim::hidden}, Use::vector, Shard::rep, When::always},
};
// clang-format on

/// 0, or no key: none.
double softcap(const HparamReader& reader, std::string_view suffix) {
    return reader.float_or(suffix, 0.0) == 0.0 ? 0.0 : reader.positive_float_or(suffix, 0.0);
}

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    h.embedding_scale = std::sqrt(static_cast<double>(h.hidden_size));
    h.activation = ASSAY_GLU_GELU_TANH;
    h.attn_logit_softcap = softcap(reader, "attn_logit_softcapping");
    h.final_logit_softcap = softcap(reader, "final_logit_softcapping");
    // The 27B model alone scales by the width of a head that it does not have.
    if (h.num_layers == 62)
        h.softmax_scale = 1.0 / std::sqrt(static_cast<double>(h.hidden_size) / static_cast<double>(h.num_q_heads));
    reader.read_windows(h, 6);

    (void)reader.metadata().get_float(reader.key("rope.freq_base"));
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    RopeParams sliding{.n_rot = h.ropes.front().n_rot, .style = ASSAY_ROPE_NEOX};  // never scaled
    sliding.theta = reader.positive_float_or("rope.freq_base_swa", 10000.0);
    h.ropes.push_back(sliding);
    for (LayerParams& layer : h.layers) layer.rope = layer.window != 0 ? 1 : 0;
    return h;
}

}  // namespace

const Architecture kGemma3{"gemma3",
                           {kEnds, kGqa, kQkNorm<When::always>, kSandwichNorms, kDenseFfn},
                           read};

}  // namespace model::architectures
