// The pointwise ops: argument checks, strides and threads. The arithmetic is in the row kernels of
// the device's tier.

#include "ops.hpp"

#include "parallel.hpp"

#include <bit>
#include <cmath>

namespace cpu {
namespace {

// ---- norms -----------------------------------------------------------------------------------

assay_status rmsnorm(void* self, const assay_tensor* x, const assay_tensor* residual,
                     const assay_tensor* weight, float eps, const assay_tensor* out,
                     const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const bool has_residual = !is_absent(residual), has_weight = !is_absent(weight);
    const Rows<const float> from{*x};
    if (has_residual && !(is_f32_rows(residual) && same_shape(*x, *residual))) return ASSAY_INVALID;
    if (has_weight && !is_vector(weight, from.width())) return ASSAY_INVALID;
    const Rows<float> to{*out}, sum{has_residual ? *residual : *out};
    if (from.width() == 0) return ASSAY_OK;
    return for_rows(s, from.count(), 2 * from.width(), [&](std::int64_t row) {
        kernels(self).rmsnorm(from[row], has_residual ? sum[row] : nullptr, floats(weight), eps,
                              to[row], from.width());
    });
}

assay_status layernorm(void* self, const assay_tensor* x, const assay_tensor* weight,
                       const assay_tensor* bias, float eps, const assay_tensor* out,
                       const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    if (!is_absent(weight) && !is_vector(weight, from.width())) return ASSAY_INVALID;
    if (!is_absent(bias) && !is_vector(bias, from.width())) return ASSAY_INVALID;
    if (from.width() == 0) return ASSAY_OK;
    return for_rows(s, from.count(), 3 * from.width(), [&](std::int64_t row) {
        kernels(self).layernorm(from[row], floats(weight), floats(bias), eps, to[row],
                                from.width());
    });
}

// ---- rope ------------------------------------------------------------------------------------

assay_status rope_table(void*, const std::int32_t* pos, std::int64_t num_tokens,
                        const double* inv_freq, std::int32_t half_dims, float mscale,
                        const assay_tensor* cos_sin, const assay_stream* s) {
    if (!is_f32_rows(cos_sin, 3) || num_tokens < 0 || half_dims < 1 ||
        cos_sin->shape[0] != num_tokens || cos_sin->shape[1] != 2 || cos_sin->shape[2] != half_dims)
        return ASSAY_INVALID;
    if (num_tokens == 0) return ASSAY_OK;
    if (pos == nullptr || inv_freq == nullptr) return ASSAY_INVALID;
    const Rows<float> table{*cos_sin};
    return for_rows(s, num_tokens, 2 * kCostDouble * half_dims, [&](std::int64_t t) {
        float *cos = table[2 * t], *sin = table[2 * t + 1];
        for (std::int32_t i = 0; i < half_dims; ++i) {
            const double angle = pos[t] * inv_freq[i];
            cos[i] = static_cast<float>(double{mscale} * std::cos(angle));
            sin[i] = static_cast<float>(double{mscale} * std::sin(angle));
        }
    });
}

assay_status rope(void* self, const assay_tensor* x, const assay_tensor* cos_sin,
                  std::int32_t style, const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(x, 3) || !is_f32_rows(out, 3) || !may_map(*x, *out) ||
        !is_f32_rows(cos_sin, 3))
        return ASSAY_INVALID;
    const std::int64_t tokens = x->shape[0], heads = x->shape[1], head_dim = x->shape[2];
    const std::int64_t half_dims = cos_sin->shape[2];
    if (cos_sin->shape[0] != tokens || cos_sin->shape[1] != 2 || half_dims < 1 ||
        2 * half_dims > head_dim || (style != ASSAY_ROPE_NORM && style != ASSAY_ROPE_NEOX))
        return ASSAY_INVALID;
    const Rows<const float> from{*x}, table{*cos_sin};
    const Rows<float> to{*out};
    return for_rows(s, tokens * heads, head_dim, [&](std::int64_t row) {
        const std::int64_t t = row / heads;
        kernels(self).rope(from[row], table[2 * t], table[2 * t + 1], style, to[row], head_dim,
                           half_dims);
    });
}

// ---- element by element ----------------------------------------------------------------------

assay_status glu(void* self, std::int32_t kind, float alpha, float limit, const assay_tensor* gate,
                 const assay_tensor* up, const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(gate) || !is_f32_rows(up) || !is_f32_rows(out) || !may_map(*gate, *out) ||
        !may_map(*up, *out) || kind < ASSAY_GLU_NONE || kind > ASSAY_GLU_SILU_CLAMP)
        return ASSAY_INVALID;
    const Rows<const float> g{*gate}, u{*up};
    const Rows<float> to{*out};
    return for_pieces(s, g.count(), g.width(), kCostExp,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).glu(kind, alpha, limit, g[row] + first, u[row] + first,
                                            to[row] + first, count);
                      });
}

assay_status add(void* self, const assay_tensor* a, const assay_tensor* b, float factor,
                 const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(a) || !is_f32_rows(b) || !is_f32_rows(out) || !may_map(*a, *out) ||
        !may_map(*b, *out))
        return ASSAY_INVALID;
    const Rows<const float> u{*a}, v{*b};
    const Rows<float> to{*out};
    return for_pieces(
        s, u.count(), u.width(), 1, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
            kernels(self).add(u[row] + first, v[row] + first, factor, to[row] + first, count);
        });
}

assay_status scale(void* self, const assay_tensor* x, float factor, const assay_tensor* out,
                   const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    return for_pieces(s, from.count(), from.width(), 1,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).scale(from[row] + first, factor, to[row] + first, count);
                      });
}

assay_status softcap(void* self, const assay_tensor* x, float cap, const assay_tensor* out,
                     const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out) || !(cap > 0))
        return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    return for_pieces(s, from.count(), from.width(), kCostExp,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).softcap(from[row] + first, cap, to[row] + first, count);
                      });
}

assay_status hadamard(void* self, const assay_tensor* x, const assay_tensor* out,
                      const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    const std::int64_t n = from.width();
    if (!std::has_single_bit(static_cast<std::uint64_t>(n))) return ASSAY_INVALID;
    return for_rows(s, from.count(), 4 * n,
                    [&](std::int64_t row) { kernels(self).hadamard(from[row], to[row], n); });
}

assay_status add_bias(void* self, const assay_tensor* x, const assay_tensor* bias,
                      const std::int32_t* expert_offset, const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(bias, expert_offset != nullptr ? 2 : 1))
        return ASSAY_INVALID;
    const Rows<float> rows{*x};
    const std::int64_t n = rows.width();
    if (bias->shape[bias->rank - 1] != n) return ASSAY_INVALID;
    if (expert_offset == nullptr)
        return for_rows(s, rows.count(), n, [&](std::int64_t row) {
            kernels(self).add(rows[row], floats(bias), 1.0f, rows[row], n);
        });

    const std::int64_t num_experts = bias->shape[0];
    const Rows<const float> biases{*bias};
    for (std::int64_t e = 0; e < num_experts; ++e)
        if (expert_offset[e] < 0 || expert_offset[e] > expert_offset[e + 1]) return ASSAY_INVALID;
    if (x->rank != 2 || (num_experts > 0 && expert_offset[num_experts] > rows.count()))
        return ASSAY_INVALID;
    return for_rows(s, rows.count(), n, [&](std::int64_t row) {
        // The expert whose range holds the slot: the first whose end lies beyond it.
        const std::int32_t* ends = expert_offset + 1;
        const std::int64_t e = std::upper_bound(ends, ends + num_experts, row) - ends;
        if (e < num_experts && row >= expert_offset[0])
            kernels(self).add(rows[row], biases[e], 1.0f, rows[row], n);
    });
}

// ---- the table -------------------------------------------------------------------------------

assay_status supports(void*, std::int32_t op, std::int32_t dtype, assay_error* why) {
    if (op < ASSAY_OP_COPY || op > ASSAY_OP_SAMPLE)
        return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d is not one of this ABI", op);
    const bool fits = op == ASSAY_OP_COPY          ? is_float(dtype)
                      : op == ASSAY_OP_GATHER_ROWS ? is_dtype(dtype)
                                                   : dtype == ASSAY_F32;
    if (fits) return ASSAY_OK;
    return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d: activations of %s, the cpu device has %s", op,
                     sdk::dtype_name(dtype), op == ASSAY_OP_COPY ? "f32, f16, bf16" : "f32");
}

}  // namespace

const assay_ops cpu_ops = {
    .size = sizeof(assay_ops),
    .supports = supports,
    .copy = copy,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .rope_table = rope_table,
    .rope = rope,
    .glu = glu,
    .add = add,
    .scale = scale,
    .add_bias = add_bias,
    .hadamard = hadamard,
    .softcap = softcap,
    .router = router,
    .expert_sort = expert_sort,
    .expert_combine = expert_combine,
    .gather_rows = gather_rows,
    .logits_edit = logits_edit,
    .logits_mask = logits_mask,
    .logprobs = logprobs,
    .sample = sample,
};

}  // namespace cpu
