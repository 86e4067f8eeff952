// qwen3moe (architectures.md section 10): qwen3's attention, every layer a mixture of experts whose
// weights are renormalised.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSoftmax = 1;

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    (void)reader.get_int("expert_count");
    reader.read_moe(h, kSoftmax, true);
    if (h.num_experts > 0 && !reader.metadata().contains(reader.key("expert_feed_forward_length"))) {
        h.moe_intermediate_size = h.intermediate_size / h.num_experts_per_tok;
        if (h.moe_intermediate_size < 1) (void)reader.get_int("expert_feed_forward_length");
    }
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kQwen3Moe{"qwen3moe",
                             {kEnds, kGqa, kQkNorm<When::always>, kFfnNorm, kExperts},
                           read};

}  // namespace model::architectures
