#pragma once

// What one row of each op costs its thread: plain functions over dense f32, one table per tier. The
// checks, the strides and the threads are in ops.cpp. C headers only (see CMakeLists.txt).

#include "abi/device.h"

#include <stdint.h>

namespace cpu {

/// Rows of n elements unless said otherwise; `out` may be `x`. Every function gives the same bits
/// for a row whatever is computed beside it, and the vector tiers give the same bits as each other.
struct RowKernels {
    const char* name;

    // residual null: norm of x. Otherwise residual += x first, then the norm of residual.
    void (*rmsnorm)(const float* x, float* residual, const float* weight, float eps, float* out,
                    int64_t n);
    void (*layernorm)(const float* x, const float* weight, const float* bias, float eps, float* out,
                      int64_t n);
    // One head of head_dim; cos and sin [half_dims].
    void (*rope)(const float* x, const float* cos, const float* sin, int32_t style, float* out,
                 int64_t head_dim, int64_t half_dims);
    void (*glu)(int32_t kind, float alpha, float limit, const float* gate, const float* up,
                float* out, int64_t n);
    void (*add)(const float* a, const float* b, float scale, float* out, int64_t n);
    void (*scale)(const float* x, float factor, float* out, int64_t n);
    void (*hadamard)(const float* x, float* out, int64_t n);
    void (*softcap)(const float* x, float cap, float* out, int64_t n);
    // out = (accumulate ? out : 0) + sum_j weights[j] * y[slots[j] * y_stride + i], in order of j.
    void (*expert_combine)(const float* y, int64_t y_stride, const int32_t* slots,
                           const float* weights, int64_t top_k, bool accumulate, float* out,
                           int64_t n);
    void (*router)(const assay_router* r, const float* logits, const float* bias,
                   int64_t num_experts, int32_t* ids, float* weights);

    void (*f32_to_f16)(const float* x, uint16_t* out, int64_t n);
    void (*f16_to_f32)(const uint16_t* x, float* out, int64_t n);
    void (*f32_to_bf16)(const float* x, uint16_t* out, int64_t n);
    void (*bf16_to_f32)(const uint16_t* x, float* out, int64_t n);

    // n = vocab_size. token outside [0, n): logprob is -inf. top_* [num_top], padded with -1, -inf.
    void (*logprobs)(const float* logits, int64_t n, int32_t token, float* logprob, int32_t num_top,
                     int32_t* top_ids, float* top_logprobs);
    // The chosen token, or -1 when no logit is finite.
    int32_t (*sample)(const float* logits, int64_t n, const assay_sample_row* row);
};

constexpr int64_t kMaxExperts = 1024;  // of one router call; router() keeps its scores on the stack

/// Router of the vector tiers: the definition's arithmetic (double), without its allocations.
void route_row(const assay_router* r, const float* logits, const float* bias, int64_t num_experts,
               int32_t* ids, float* weights);

extern const RowKernels reference_kernels;  // the definitions of sdk/reference
extern const RowKernels baseline_kernels;   // what the compiler's default target has
extern const RowKernels avx2_kernels;
extern const RowKernels avx512_kernels;

}  // namespace cpu
