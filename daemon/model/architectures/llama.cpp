// llama: Llama 1 to 3.x, Mistral, Mixtral and relatives (architectures.md section 7). The converter
// permutes the rows of Q and K, so that RoPE is interleaved here; rope_freqs carries llama3 scaling.

#include "daemon/base/error.hpp"
#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    reader.read_moe(h, 1);
    h.normalize_expert_weights = h.num_experts > 0;  // softmax, top-k, always renormalised
    h.expert_weights_scale = 1.0;
    const std::int64_t n_rot = reader.int_or("rope.dimension_count", h.head_dim);
    if (n_rot != h.head_dim)
        throw base::ModelError{"metadata key \"llama.rope.dimension_count\": expected the head size " +
                               std::to_string(h.head_dim) + ", found " + std::to_string(n_rot)};
    RopeParams rope = reader.rope(n_rot, ASSAY_ROPE_NORM);
    rope.use_rope_freqs = true;
    h.ropes.push_back(rope);
    return h;
}

}  // namespace

const Architecture kLlama{"llama", {kEnds, kRopeFreqs, kGqa, kQkvBias, kFfnNorm, kDenseFfn, kExperts}, read};

}  // namespace model::architectures
