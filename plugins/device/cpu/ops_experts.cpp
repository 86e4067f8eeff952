// Mixture of experts: choosing, sorting, adding up.

#include "ops.hpp"
#include "parallel.hpp"

#include <limits>

namespace cpu {
namespace {

bool is_valid(const assay_router& r, std::int64_t num_experts) {
    if (num_experts < 1 || num_experts > kMaxExperts) return false;
    if (r.gating < 1 || r.gating > 4 || r.top_k < 1 || r.top_k > num_experts) return false;
    if (r.num_groups <= 1) return r.num_groups >= 0;
    if (num_experts % r.num_groups != 0 || r.top_groups < 1 || r.top_groups > r.num_groups)
        return false;
    return r.top_k <= r.top_groups * (num_experts / r.num_groups);
}

}  // namespace

assay_status router(void* self, const assay_router* r, const assay_tensor* logits,
                    const assay_tensor* bias, const assay_tensor* ids, const assay_tensor* weights,
                    const assay_stream* s) {
    if (r == nullptr || !is_f32_rows(logits, 2) || !is_rows(ids, ASSAY_I32, 2) ||
        !is_f32_rows(weights, 2) || !is_valid(*r, logits->shape[1]))
        return ASSAY_INVALID;
    const std::int64_t tokens = logits->shape[0], experts = logits->shape[1];
    if (ids->shape[0] != tokens || ids->shape[1] != r->top_k || !same_shape(*ids, *weights) ||
        (!is_absent(bias) && !is_vector(bias, experts)))
        return ASSAY_INVALID;
    const Rows<const float> from{*logits};
    const Rows<std::int32_t> to_ids{*ids};
    const Rows<float> to_weights{*weights};
    return for_rows(s, tokens, experts * (kCostDouble + r->top_k), [&](std::int64_t t) {
        kernels(self).router(r, from[t], floats(bias), experts, to_ids[t], to_weights[t]);
    });
}

// A counting sort: one pass to count, one to place. Serial: a step has a few thousand pairs.
assay_status expert_sort(void*, const assay_tensor* ids, std::int32_t num_experts,
                         std::int32_t* slot_of, std::int32_t* row_ids, std::int32_t* offset,
                         const assay_stream*) {
    if (!is_rows(ids, ASSAY_I32, 2) || num_experts < 1 || offset == nullptr) return ASSAY_INVALID;
    const std::int64_t tokens = ids->shape[0], top_k = ids->shape[1];
    const Rows<const std::int32_t> rows{*ids};
    if (tokens * top_k > std::numeric_limits<std::int32_t>::max() ||
        (tokens * top_k > 0 && (slot_of == nullptr || row_ids == nullptr)))
        return ASSAY_INVALID;
    std::fill(offset, offset + num_experts + 1, 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t j = 0; j < top_k; ++j) {
            const std::int32_t e = rows[t][j];
            if (e < 0 || e >= num_experts) return ASSAY_INVALID;
            ++offset[e];
        }
    }
    std::int32_t first = 0;
    for (std::int32_t e = 0; e <= num_experts; ++e) {
        const std::int32_t count = offset[e];
        offset[e] = first;
        first += count;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {  // offset[e] is the next free slot of e
        for (std::int64_t j = 0; j < top_k; ++j) {
            const std::int32_t slot = offset[rows[t][j]]++;
            slot_of[t * top_k + j] = slot;
            row_ids[slot] = static_cast<std::int32_t>(t);
        }
    }
    std::copy_backward(offset, offset + num_experts - 1, offset + num_experts);
    offset[0] = 0;
    return ASSAY_OK;
}

assay_status expert_combine(void* self, const assay_tensor* y, const std::int32_t* slot_of,
                            const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                            const assay_stream* s) {
    if (!is_f32_rows(y, 2) || !is_f32_rows(weights, 2) || !is_f32_rows(out, 2) ||
        weights->shape[0] != out->shape[0] || y->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t tokens = out->shape[0], n = out->shape[1], top_k = weights->shape[1];
    if (tokens * top_k > 0 && slot_of == nullptr) return ASSAY_INVALID;
    for (std::int64_t pair = 0; pair < tokens * top_k; ++pair)
        if (slot_of[pair] < 0 || slot_of[pair] >= y->shape[0]) return ASSAY_INVALID;
    const Rows<const float> w{*weights};
    const Rows<float> to{*out};
    return for_rows(s, tokens, n * (top_k + 1), [&](std::int64_t t) {
        kernels(self).expert_combine(floats(y), y->stride[0], slot_of + t * top_k, w[t], top_k,
                                     accumulate, to[t], n);
    });
}

}  // namespace cpu
