#include "plugins/quant/ggml/call.hpp"

#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/query.hpp"

namespace ggml {
namespace {

/// Offsets must not fall and stay within the slots, rows within x.
assay_status check_grouping(const assay_matmul& a, std::int64_t num_experts,
                            assay_error* err) noexcept {
    if (a.expert_offset[0] < 0)
        return sdk::fail(err, ASSAY_INVALID, "expert_offset[0] is %d", a.expert_offset[0]);
    for (std::int64_t e = 0; e < num_experts; ++e)
        if (a.expert_offset[e + 1] < a.expert_offset[e] || a.expert_offset[e + 1] > a.num_slots)
            return sdk::fail(err, ASSAY_INVALID, "expert_offset[%lld] is %d after %d, of %d slots",
                             static_cast<long long>(e + 1), a.expert_offset[e + 1],
                             a.expert_offset[e], a.num_slots);
    const std::int32_t end = a.expert_offset[num_experts];
    if (a.row_ids == nullptr && end > a.x.shape[0])
        return sdk::fail(err, ASSAY_INVALID, "grouped: %d slots without row_ids, x has %lld rows",
                         end, static_cast<long long>(a.x.shape[0]));
    for (std::int32_t s = a.expert_offset[0]; a.row_ids != nullptr && s < end; ++s)
        if (a.row_ids[s] < 0 || a.row_ids[s] >= a.x.shape[0])
            return sdk::fail(err, ASSAY_INVALID, "row_ids[%d] is %d, x has %lld rows", s,
                             a.row_ids[s], static_cast<long long>(a.x.shape[0]));
    return ASSAY_OK;
}

}  // namespace

assay_status resolve(const Tier& tier, std::int32_t op, const assay_matmul& a, Call& call,
                     assay_error* err) noexcept {
    if (const assay_status s = check_arguments(op, a, err); s != ASSAY_OK) return s;
    const std::int64_t num_experts = a.w[0]->experts;
    if (op == ASSAY_Q_GROUPED)
        if (const assay_status s = check_grouping(a, num_experts, err); s != ASSAY_OK) return s;

    call = {};
    call.args = &a;
    call.op = op;
    call.k = a.w[0]->cols;
    call.num_experts = num_experts;
    call.num_slots = op == ASSAY_Q_GROUPED ? a.num_slots : a.x.shape[0];
    call.num_x_rows = op == ASSAY_Q_BATCHED ? a.x.shape[0] * num_experts : a.x.shape[0];
    for (int i = 0; i < a.num_weights; ++i) {
        call.format[i] = find_format(a.w[i]->format);
        call.kernel[i] = tier.kernel(*call.format[i], (a.flags & ASSAY_MM_PRECISE) != 0);
    }
    return ASSAY_OK;
}

}  // namespace ggml
