#pragma once

// Bias, gated activations and the residual, on sixteen products at a time.

#include "plugins/quant/ggml/simd/isa.hpp"

namespace ggml {
namespace {

/// e^x within 2 ulp for x in [-87, 88]; x is clamped to that. NaN stays NaN.
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series to r^7, whose rest is below 6e-9.
ALWAYS_INLINE F16 exp_clamped(F16 x) {
    x = min(set1(88.0f), max(set1(-87.0f), x));
    const F16 magic = set1(0x1.8p23f);  // adding it leaves round(x / ln 2) in the low bits
    const F16 n_bits = fma(x, set1(0x1.715476p0f), magic);
    const F16 n = n_bits - magic;
    F16 r = fma(n, set1(-0x1.62e4p-1f), x);  // ln 2 in two parts; the first is exact times n
    r = fma(n, set1(-0x1.7f7d1cp-20f), r);
    F16 p = set1(1.0f / 5040);
    p = fma(p, r, set1(1.0f / 720));
    p = fma(p, r, set1(1.0f / 120));
    p = fma(p, r, set1(1.0f / 24));
    p = fma(p, r, set1(1.0f / 6));
    p = fma(p, r, set1(0.5f));
    p = fma(p, r, set1(1.0f));
    p = fma(p, r, set1(1.0f));
    return scale_by_power(p, n_bits);
}

/// v * sigmoid(a)
ALWAYS_INLINE F16 times_sigmoid(F16 v, F16 a) {
    return v / (set1(1.0f) + exp_clamped(zero() - a));
}

ALWAYS_INLINE F16 apply_glu(const EpilogueArgs& args, F16 gate, F16 up) {
    if (args.glu == ASSAY_GLU_GELU_TANH) {
        // 0.5 g (1 + tanh u) = g sigmoid(2u), u = sqrt(2 / pi) (g + 0.044715 g^3)
        const F16 cubic = fma(set1(0.044715f) * gate * gate, gate, gate);
        return times_sigmoid(gate, set1(1.5957691216057308f) * cubic) * up;
    }
    if (args.glu == ASSAY_GLU_SILU_CLAMP) {
        const F16 limit = set1(args.glu_limit);
        gate = min(limit, gate);
        up = max(zero() - limit, min(limit, up));
        return times_sigmoid(gate, set1(args.glu_alpha) * gate) * (up + set1(1.0f));
    }
    return times_sigmoid(gate, gate) * up;
}

void epilogue(const EpilogueArgs& args) {
    for (int t = 0; t < args.num_tokens; ++t) {
        for (int r = 0; r < args.num_rows; r += 16) {
            const int n = args.num_rows - r < 16 ? args.num_rows - r : 16;
            const auto product = [&](int part) {
                F16 value = load(static_cast<const float*>(args.product[part]) + t * kTileRows + r);
                if (args.bias[part] != nullptr) value = value + load_first(args.bias[part] + r, n);
                return value;
            };
            F16 value = product(0);
            if (args.glu != ASSAY_GLU_NONE) value = apply_glu(args, value, product(1));
            if (args.accumulate) value = value + load_first(args.y[t] + r, n);
            store_first(args.y[t] + r, value, n);
        }
    }
}

}  // namespace
}  // namespace ggml
