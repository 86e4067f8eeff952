// deepseek2: DeepSeek V2, V2-Lite, V3, R1, Kimi K2, GLM-4.7-Flash and relatives (architectures.md
// section 3). Multi-head latent attention with or without a low-rank query; the router of V2
// (softmax) or of V3 (sigmoid with a selection bias), with or without expert groups.

#include "daemon/base/error.hpp"
#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"
#include "daemon/model/architectures/mla.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSoftmax = 1, kSigmoid = 2;

/// V2 has no selection bias and gates by softmax; V3 has one and gates by sigmoid. Files that do not
/// name the function are told apart by it (3.4, trap 1).
void read_router(const HparamReader& reader, Hparams& h) {
    const auto first_moe = std::to_string(reader.int_or("leading_dense_block_count", 0));
    h.has_router_bias = reader.shape("blk." + first_moe + ".exp_probs_b.bias") != nullptr;
    reader.read_moe(h, h.has_router_bias ? kSigmoid : kSoftmax);
    if (h.num_experts > 0 && reader.int_or("expert_gating_func", 0) == 0)
        h.notes.push_back(reader.key("expert_gating_func") + " is missing: " +
                          (h.has_router_bias ? "sigmoid, since the router has a selection bias"
                                             : "softmax, since the router has no selection bias"));
    // Without its bias, a router that gates by sigmoid is broken: it is asked for.
    h.has_router_bias = h.has_router_bias || h.gating == kSigmoid;
}

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    read_router(reader, h);
    read_mla(reader, h);
    if (const double scale = reader.float_or("attention.temperature_scale", 0.0); scale != 0.0)
        throw base::ModelError{"metadata key \"" + reader.key("attention.temperature_scale") +
                               "\": expected 0 or no key, found " + std::to_string(scale) +
                               "; queries whose scale grows with the position are not supported"};
    return h;
}

}  // namespace

const Architecture kDeepseek2{"deepseek2",
                              {kEnds, kMla, kFfnNorm, kDenseFfn, kExperts, kRouterBias, kSharedExperts, kNextn},
                              read};

}  // namespace model::architectures
