#pragma once

// The entries of assay_ops that are not in ops.cu. What each does is said in abi/device.h. A call that
// breaks a precondition which can be seen from its arguments returns INVALID and launches nothing;
// what lies in device memory (ids, slots, offsets) is not read by the host: where such a value is out
// of range the kernel leaves its place out, or writes NaN where something must be written.

#include "abi/device.h"

#include <cstdint>

namespace cuda {

bool is_float(std::int32_t dtype);  // one that copy() converts
bool is_dtype(std::int32_t dtype);  // one of this ABI

assay_status copy_op(void*, const assay_tensor* x, const assay_tensor* out, const assay_stream* s);
assay_status gather_rows(void*, const assay_tensor* x, const std::int32_t* ids,
                         const assay_tensor* out, const assay_stream* s);
assay_status router(void*, const assay_router* r, const assay_tensor* logits,
                    const assay_tensor* bias, const assay_tensor* ids, const assay_tensor* weights,
                    const assay_stream* s);
assay_status expert_sort(void*, const assay_tensor* ids, std::int32_t num_experts,
                         std::int32_t* slot_of, std::int32_t* row_ids, std::int32_t* offset,
                         const assay_stream* s);
assay_status expert_combine(void*, const assay_tensor* y, const std::int32_t* slot_of,
                            const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                            const assay_stream* s);
assay_status logits_edit(void*, const assay_tensor* logits, const assay_logit_edit* edits,
                         std::int64_t num_edits, const assay_stream* s);
assay_status logits_mask(void*, const assay_tensor* logits, const std::uint32_t* bits,
                         std::int64_t words_per_row, const std::int32_t* mask_row,
                         const assay_stream* s);
assay_status logprobs(void*, const assay_tensor* logits, const std::int32_t* tokens, float* logprob,
                      std::int32_t num_top, std::int32_t* top_ids, float* top_logprobs,
                      const assay_stream* s);
assay_status sample(void*, const assay_tensor* logits, const assay_sample_row* params,
                    std::int32_t* token, const assay_stream* s);

}  // namespace cuda
