// llama: Llama 1 to 3.x, Mistral, Mixtral and relatives (architectures.md section 7). The converter
// permutes the rows of Q and K, so that RoPE is interleaved here; rope_freqs carries llama3 scaling,
// rope_factors_* longrope.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

// clang-format off
// Frequencies that old converters stored layer by layer; they follow from the metadata.
constexpr TensorSpec kRotaryBuffer[] = {
    {Role::attn_rot_embd, "blk.{}.attn_rot_embd.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq", {Dim::rot_half}, Use::skipped, Shard::rep, When::optional},
};
// clang-format on

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    reader.read_moe(h, 1);
    h.normalize_expert_weights = h.num_experts > 0;  // softmax, top-k, always renormalised
    h.expert_weights_scale = 1.0;
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NORM));
    h.ropes.front().use_factors = true;
    return h;
}

}  // namespace

const Architecture kLlama{"llama",
                          {kEnds, kRopeFactors, kGqa, kQkvBias<When::optional>, kAttnOutputBias<When::optional>,
                           kRotaryBuffer, kFfnNorm, kDenseFfn, kDenseFfnBias, kExperts},
                           read};

}  // namespace model::architectures
