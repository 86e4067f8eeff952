// Runner: feed-forward of one layer. Formulas: architectures.md sections 1.6 and 1.7.

#include <algorithm>

#include "cxx/plugin.hpp"
#include "daemon/model/runner_buffers.hpp"

namespace model {

Launcher::Gated Runner::gated(Role gate, Role up, bool is_fused, std::int64_t rows, std::int64_t width) const {
    const auto bias = [&](Role role) {
        const Role bias_role = bias_of(role);
        return bias_role == Role::count ? nullptr : &w(bias_role);
    };
    const auto product = [&](Role role, const plugin::Buffer& scratch) {
        return Launcher::Product{&w(role), sdk::make_tensor(scratch.data(), ASSAY_F32, rows, width), bias(role)};
    };
    return {h_.activation, static_cast<float>(h_.glu_alpha), static_cast<float>(h_.glu_limit), is_fused,
            product(gate, b_->ffn_gate), product(up, b_->ffn_up)};
}

void Runner::dense_ffn(std::int64_t T) {
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor u = sdk::make_tensor(b_->u.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor y = sdk::make_tensor(b_->ffn_h.data(), ASSAY_F32, T, h_.intermediate_size);

    rmsnorm("ffn_norm", x, w(Role::ffn_norm), u);
    launcher_.tap("ffn_norm", u);
    launcher_.matmul_glu("ffn_gate, ffn_up", u,
                         gated(Role::ffn_gate, Role::ffn_up, fused().dense, T, h_.intermediate_size), y);
    const Weight& post_norm = w(Role::post_ffw_norm);
    launcher_.matmul("ffn_down", y, {{&w(Role::ffn_down), block_output(post_norm, T), &w(Role::ffn_down_bias)}},
                     block_flags(post_norm));
    add_block("post_ffw_norm", post_norm, T);
}

void Runner::moe_ffn(std::int64_t T) {
    const std::int64_t K = h_.num_experts_per_tok, E = h_.num_experts, S = T * K;
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor u = sdk::make_tensor(b_->u.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor logits = sdk::make_tensor(b_->router_logits.data(), ASSAY_F32, T, E);
    const assay_tensor ids = sdk::make_tensor(b_->expert_ids.data(), ASSAY_I32, T, K);
    const assay_tensor weights = sdk::make_tensor(b_->expert_weights.data(), ASSAY_F32, T, K);
    const assay_tensor expert_y = sdk::make_tensor(b_->expert_y.data(), ASSAY_F32, S, h_.hidden_size);
    const assay_tensor expert_h = sdk::make_tensor(b_->ffn_h.data(), ASSAY_F32, S, h_.moe_intermediate_size);

    rmsnorm("ffn_norm", x, w(Role::ffn_norm), u);
    launcher_.tap("ffn_norm", u);
    launcher_.matmul("router", u, {{&w(Role::router), logits, &w(Role::router_logits_bias)}});
    launcher_.tap("router_logits", logits);

    assay_router rule{};
    rule.size = sizeof rule;
    rule.gating = h_.gating;
    rule.top_k = static_cast<std::int32_t>(K);
    rule.num_groups = static_cast<std::int32_t>(h_.num_expert_groups);
    rule.top_groups = static_cast<std::int32_t>(h_.num_expert_groups_used);
    rule.normalize = h_.normalize_expert_weights;
    rule.scale = static_cast<float>(h_.expert_weights_scale);
    const Weight& bias_weight = w(Role::router_bias);
    const assay_tensor bias = bias_weight ? bias_weight.vector() : assay_tensor{};
    launcher_.op("router top-k", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.router(self, &rule, &logits, bias_weight ? &bias : nullptr, &ids, &weights, s);
    });
    launcher_.tap("expert_ids", ids);
    launcher_.tap("expert_weights", weights);
    launcher_.op("expert sort", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.expert_sort(self, &ids, static_cast<std::int32_t>(E), b_->slot_of.as<std::int32_t>(),
                               b_->row_ids.as<std::int32_t>(), b_->expert_offset.as<std::int32_t>(), s);
    });

    // A token chooses an expert once, so no expert sees more than T rows.
    Launcher::Groups groups{b_->row_ids.as<std::int32_t>(), b_->expert_offset.as<std::int32_t>(),
                            static_cast<std::int32_t>(S), static_cast<std::int32_t>(T)};
    launcher_.grouped_glu("ffn_gate_exps, ffn_up_exps", groups, u,
                          gated(Role::ffn_gate_exps, Role::ffn_up_exps, fused().experts, S, h_.moe_intermediate_size),
                          expert_h);
    groups.row_ids = nullptr;
    launcher_.grouped("ffn_down_exps", groups, expert_h,
                      {&w(Role::ffn_down_exps), expert_y, &w(Role::ffn_down_exps_bias)});

    const Weight& post_norm = w(Role::post_ffw_norm);
    const assay_tensor out = block_output(post_norm, T);
    launcher_.op("expert combine", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.expert_combine(self, &expert_y, b_->slot_of.as<std::int32_t>(), &weights, !post_norm,
                                  &out, s);
    });
    if (h_.num_shared_experts > 0) {
        const std::int64_t width = h_.moe_intermediate_size * h_.num_shared_experts;
        const assay_tensor shared = sdk::make_tensor(b_->ffn_h.data(), ASSAY_F32, T, width);
        launcher_.matmul_glu("ffn_gate_shexp, ffn_up_shexp", u,
                             gated(Role::ffn_gate_shexp, Role::ffn_up_shexp, fused().shared, T, width), shared);
        launcher_.matmul("ffn_down_shexp", shared, {{&w(Role::ffn_down_shexp), out}},
                         ASSAY_MM_ACCUMULATE);
    }
    add_block("post_ffw_norm", post_norm, T);
}

}  // namespace model
