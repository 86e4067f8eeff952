#pragma once

// Definitions of the pointwise ops of the ABI's kind "device/1", for one row or one batch of dense
// f32 rows. They say what "correct" means: double arithmetic, one rounding at the end, the plainest
// loops that can be checked by eye against the source. Nothing here is meant to be fast.
//
// Shapes: T num_tokens, n the last dimension, E num_experts. All arrays are dense and row-major.
// `out` may be `x`.

#include "abi/device.h"

#include <cstdint>

namespace sdk::reference {

/// out[t, i] = x[t, i] / sqrt(mean_i(x[t, :]^2) + eps) * weight[i]; weight null: ones.
/// Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019, eq. 4 (eps added).
void rmsnorm(const float* x, const float* weight, float* out, std::int64_t num_tokens,
             std::int64_t n, float eps);

/// residual[t, i] += x[t, i], rounded to f32 (it is stored), then rmsnorm of the stored residual.
void add_rmsnorm(const float* x, float* residual, const float* weight, float* out,
                 std::int64_t num_tokens, std::int64_t n, float eps);

/// out = (x - mean) / sqrt(var + eps) * weight + bias, var biased (divided by n). Weight null:
/// ones; bias null: zeros. Source: Ba, Kiros & Hinton, "Layer Normalization", 2016, eq. 3 and 4
/// (eps added).
void layernorm(const float* x, const float* weight, const float* bias, float* out,
               std::int64_t num_tokens, std::int64_t n, float eps);

/// cos_sin[t, 0, i] = mscale * cos(pos[t] * inv_freq[i]); cos_sin[t, 1, i] likewise sin.
/// @param cos_sin  [T, 2, half_dims]
void rope_table(const std::int32_t* pos, std::int64_t num_tokens, const double* inv_freq,
                std::int64_t half_dims, float mscale, float* cos_sin);

/// Rotates pairs (u, v) of the first 2 * half_dims entries of each head by the angle of the token:
/// (u cos - v sin, u sin + v cos). The rest of the head is copied.
/// @param x        [T, heads, head_dim]
/// @param cos_sin  [T, 2, half_dims]
/// @param style    assay_rope_style: pair i is (x[2i], x[2i+1]) or (x[i], x[i + half_dims])
/// Source: Su et al., "RoFormer", 2021, eq. 34 (NORM); GPT-NeoX's half split of the same (NEOX).
void rope(const float* x, const float* cos_sin, std::int32_t style, float* out,
          std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim,
          std::int64_t half_dims);

/// act(gate) * up for one pair, per assay_glu; NONE multiplies the plain product of the two.
/// Source: Shazeer, "GLU Variants Improve Transformer", 2020, eq. 6; Hendrycks & Gimpel, "Gaussian
/// Error Linear Units", 2016, section 2 (the tanh form); gpt-oss model card (the clamped form).
[[nodiscard]] double glu(std::int32_t kind, double alpha, double limit, double gate, double up);

/// cap * tanh(x / cap).
/// Source: Gemma Team, "Gemma 2", 2024, section 2 (logit soft-capping).
[[nodiscard]] double softcap(double x, double cap);

/// out = H x / sqrt(n), H[i, j] = (-1)^popcount(i AND j): Sylvester order, symmetric, its own
/// inverse.
/// @param n  a power of two
void hadamard(const float* x, float* out, std::int64_t num_tokens, std::int64_t n);

/// out[i] = exp(x[i] - max) / sum_j exp(x[j] - max), over one row.
void softmax(const float* x, double* out, std::int64_t n);

/// out[i] = x[i] - max - ln(sum_j exp(x[j] - max)), over the finite entries of one row. Entries
/// that are not finite take no part and get -inf.
void log_softmax(const float* x, double* out, std::int64_t n);

/// Chooses top_k experts for each token; ids best first, of equal scores the lower id first.
///
///   p = softmax(logits) | sigmoid(logits) | logits | sqrt(softplus(logits)), by gating 1..4
///   s = p + bias; the bias takes part in the choice only
///   num_groups > 1: experts outside the top_groups best groups get s = -inf. A group scores the
///   sum
///       of its two largest s with a bias, its largest without; of equal groups the lower wins
///   weights = p of the chosen; gating 3: softmax over the chosen logits
///   normalize: weights / (sum + 1e-20); then times scale
///
/// A score that is NaN counts as -inf in the choice and stays NaN in the weight.
/// @param logits   [T, E]
/// @param bias     [E] or null
/// @param ids      [T, top_k]
/// @param weights  [T, top_k]
/// Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, eq. 12-16 and section 2.1.2;
/// "DeepSeek-V2", 2024, section 2.2.2 (groups); gpt-oss model card (gating 3).
void router(const assay_router& r, const float* logits, const float* bias, std::int64_t num_tokens,
            std::int64_t num_experts, std::int32_t* ids, float* weights);

/// Stable order of the (token, choice) pairs by expert. Pair p = t * top_k + j goes to slot_of[p];
/// row_ids[slot_of[p]] = t; expert e owns slots [offset[e], offset[e + 1]).
/// @param ids  [num_tokens * top_k], each in [0, num_experts)
void expert_sort(const std::int32_t* ids, std::int64_t num_tokens, std::int64_t top_k,
                 std::int64_t num_experts, std::int32_t* slot_of, std::int32_t* row_ids,
                 std::int32_t* offset);

/// out[t, :] = (accumulate ? out[t, :] : 0) + sum_j weights[t, j] * y[slot_of[t, j], :].
/// @param y  [slots, n]
void expert_combine(const float* y, const std::int32_t* slot_of, const float* weights,
                    bool accumulate, float* out, std::int64_t num_tokens, std::int64_t top_k,
                    std::int64_t n);

}  // namespace sdk::reference
