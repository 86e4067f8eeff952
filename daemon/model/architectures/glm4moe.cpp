// glm4moe: GLM-4.5, 4.6, 4.7 (architectures.md section 12). Part of each head rotated, leading dense
// layers, sigmoid routing with a bias, a shared expert, and NextN blocks that are recognised and skipped.
// What the file calls post_attention_norm is the norm before the feed-forward.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSigmoid = 2;

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    for (const char* needed : {"rope.dimension_count", "expert_count", "expert_feed_forward_length", "expert_shared_count"})
        (void)reader.get_int(needed);
    reader.read_moe(h, kSigmoid);
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kGlm4Moe{"glm4moe",
                            {kEnds, kGqa, kQkvBias<When::optional>, kQkNorm<When::optional>,
                             kFfnNormAfterAttention, kDenseFfn, kExperts, kRouterBias, kSharedExperts, kNextn},
                           read};

}  // namespace model::architectures
