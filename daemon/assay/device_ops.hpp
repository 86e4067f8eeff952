#pragma once

#include <cstdint>

#include "abi/plugin.h"

namespace assay {

/// The checking form of the device's ops: a table whose self is an OpChecker.
struct DeviceOps {
    /// Entries that the checker judges are replaced; the model calls no others.
    [[nodiscard]] static assay_ops table(const assay_ops& real);

    static assay_status copy(void* self, const assay_tensor* x, const assay_tensor* out, const assay_stream* s);
    static assay_status rmsnorm(void* self, const assay_tensor* x, const assay_tensor* residual, const assay_tensor* weight,
                                float eps, const assay_tensor* out, const assay_stream* s);
    static assay_status layernorm(void* self, const assay_tensor* x, const assay_tensor* weight, const assay_tensor* bias,
                                  float eps, const assay_tensor* out, const assay_stream* s);
    static assay_status rope_table(void* self, const std::int32_t* pos, std::int64_t num_tokens, const double* inv_freq,
                                   std::int32_t half_dims, float mscale, const assay_tensor* cos_sin, const assay_stream* s);
    static assay_status rope(void* self, const assay_tensor* x, const assay_tensor* cos_sin, std::int32_t style,
                             const assay_tensor* out, const assay_stream* s);
    static assay_status glu(void* self, std::int32_t kind, float alpha, float limit, const assay_tensor* gate,
                            const assay_tensor* up, const assay_tensor* out, const assay_stream* s);
    static assay_status add(void* self, const assay_tensor* a, const assay_tensor* b, float scale, const assay_tensor* out,
                            const assay_stream* s);
    static assay_status scale(void* self, const assay_tensor* x, float factor, const assay_tensor* out, const assay_stream* s);
    static assay_status softcap(void* self, const assay_tensor* x, float cap, const assay_tensor* out, const assay_stream* s);
    static assay_status router(void* self, const assay_router* r, const assay_tensor* logits, const assay_tensor* bias,
                               const assay_tensor* ids, const assay_tensor* weights, const assay_stream* s);
    static assay_status expert_sort(void* self, const assay_tensor* ids, std::int32_t num_experts, std::int32_t* slot_of,
                                    std::int32_t* row_ids, std::int32_t* offset, const assay_stream* s);
    static assay_status expert_combine(void* self, const assay_tensor* y, const std::int32_t* slot_of,
                                       const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                                       const assay_stream* s);
    static assay_status gather_rows(void* self, const assay_tensor* x, const std::int32_t* rows, const assay_tensor* out,
                                    const assay_stream* s);
};

}  // namespace assay
