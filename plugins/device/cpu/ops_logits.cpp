// From logits to a token.

#include "ops.hpp"
#include "parallel.hpp"

#include <limits>

namespace cpu {

assay_status logits_edit(void*, const assay_tensor* logits, const assay_logit_edit* edits,
                         std::int64_t num_edits, const assay_stream*) {
    if (!is_f32_rows(logits, 2) || num_edits < 0 || (num_edits > 0 && edits == nullptr))
        return ASSAY_INVALID;
    const Rows<float> rows{*logits};
    for (std::int64_t i = 0; i < num_edits; ++i)
        if (edits[i].row < 0 || edits[i].row >= rows.count() || edits[i].token < 0 ||
            edits[i].token >= rows.width())
            return ASSAY_INVALID;
    for (std::int64_t i = 0; i < num_edits; ++i) {
        const assay_logit_edit& e = edits[i];
        float& logit = rows[e.row][e.token];
        logit = (logit > 0 ? logit / e.repetition : logit * e.repetition) + e.add;
    }
    return ASSAY_OK;
}

assay_status logits_mask(void*, const assay_tensor* logits, const std::uint32_t* bits,
                         std::int64_t words_per_row, const std::int32_t* mask_row,
                         const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const Rows<float> rows{*logits};
    const std::int64_t n = rows.width();
    if (rows.count() == 0) return ASSAY_OK;
    if (mask_row == nullptr || words_per_row < (n + 31) / 32) return ASSAY_INVALID;
    for (std::int64_t row = 0; row < rows.count(); ++row)
        if (mask_row[row] < -1 || (mask_row[row] >= 0 && bits == nullptr)) return ASSAY_INVALID;
    return for_rows(s, rows.count(), n, [&](std::int64_t row) {
        if (mask_row[row] < 0) return;
        const std::uint32_t* words = bits + mask_row[row] * words_per_row;
        float* logit = rows[row];
        for (std::int64_t i = 0; i < n; ++i)
            if ((words[i / 32] >> (i % 32) & 1u) == 0)
                logit[i] = -std::numeric_limits<float>::infinity();
    });
}

assay_status logprobs(void* self, const assay_tensor* logits, const std::int32_t* tokens,
                      float* logprob, std::int32_t num_top, std::int32_t* top_ids,
                      float* top_logprobs, const assay_stream* s) {
    if (!is_f32_rows(logits, 2) || num_top < 0) return ASSAY_INVALID;
    const Rows<const float> rows{*logits};
    if (rows.count() == 0) return ASSAY_OK;
    if ((tokens != nullptr && logprob == nullptr) ||
        (num_top > 0 && (top_ids == nullptr || top_logprobs == nullptr)))
        return ASSAY_INVALID;
    return for_rows(s, rows.count(), kCostExp * rows.width(), [&](std::int64_t n) {
        kernels(self).logprobs(rows[n], rows.width(), tokens != nullptr ? tokens[n] : -1,
                               tokens != nullptr ? logprob + n : nullptr, num_top,
                               num_top > 0 ? top_ids + n * num_top : nullptr,
                               num_top > 0 ? top_logprobs + n * num_top : nullptr);
    });
}

assay_status sample(void* self, const assay_tensor* logits, const assay_sample_row* params,
                    std::int32_t* token, const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const Rows<const float> rows{*logits};
    if (rows.count() == 0) return ASSAY_OK;
    if (params == nullptr || token == nullptr) return ASSAY_INVALID;
    return for_rows(s, rows.count(), kCostExp * rows.width(), [&](std::int64_t n) {
        token[n] = kernels(self).sample(rows[n], rows.width(), params + n);
    });
}

}  // namespace cpu
