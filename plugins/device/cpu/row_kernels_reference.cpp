// The tier "reference": the definitions of sdk/reference behind the row table. Slow on purpose.

#include "reference/pointwise.hpp"
#include "reference/sampling.hpp"
#include "row_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace cpu {
namespace {

namespace ref = sdk::reference;

void rmsnorm_row(const float* x, float* residual, const float* weight, float eps, float* out,
                 std::int64_t n) {
    if (residual != nullptr)
        ref::add_rmsnorm(x, residual, weight, out, 1, n, eps);
    else
        ref::rmsnorm(x, weight, out, 1, n, eps);
}

void layernorm_row(const float* x, const float* weight, const float* bias, float eps, float* out,
                   std::int64_t n) {
    ref::layernorm(x, weight, bias, out, 1, n, eps);
}

void rope_row(const float* x, const float* cos, const float* sin, std::int32_t style, float* out,
              std::int64_t head_dim, std::int64_t half_dims) {
    std::vector<float> cos_sin(cos, cos + half_dims);
    cos_sin.insert(cos_sin.end(), sin, sin + half_dims);
    ref::rope(x, cos_sin.data(), style, out, 1, 1, head_dim, half_dims);
}

void glu_row(std::int32_t kind, float alpha, float limit, const float* gate, const float* up,
             float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = static_cast<float>(
            ref::glu(kind, double{alpha}, double{limit}, double{gate[i]}, double{up[i]}));
}

void add_row(const float* a, const float* b, float scale, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = static_cast<float>(double{a[i]} + double{scale} * double{b[i]});
}

void scale_row(const float* x, float factor, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void hadamard_row(const float* x, float* out, std::int64_t n) {
    ref::hadamard(x, out, 1, n);
}

void softcap_row(const float* x, float cap, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = static_cast<float>(ref::softcap(double{x[i]}, double{cap}));
}

void expert_combine_row(const float* y, std::int64_t y_stride, const std::int32_t* slots,
                        const float* weights, std::int64_t top_k, bool accumulate, float* out,
                        std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        double sum = accumulate ? double{out[i]} : 0.0;
        for (std::int64_t j = 0; j < top_k; ++j)
            sum += double{weights[j]} * double{y[slots[j] * y_stride + i]};
        out[i] = static_cast<float>(sum);
    }
}

void router_row(const assay_router* r, const float* logits, const float* bias,
                std::int64_t num_experts, std::int32_t* ids, float* weights) {
    ref::router(*r, logits, bias, 1, num_experts, ids, weights);
}

// A 16-bit float by its definition: `fraction_bits` of fraction and what is left of exponent.
std::uint16_t narrow(float x, int fraction_bits) {
    const int exponent_bits = 15 - fraction_bits;
    const int max_exponent = (1 << (exponent_bits - 1)) - 1;  // also the bias
    const unsigned infinity = ((1u << exponent_bits) - 1u) << fraction_bits;
    const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
    if (std::isnan(x))
        return static_cast<std::uint16_t>(sign | infinity | 1u << (fraction_bits - 1));
    const double magnitude = std::abs(double{x});
    int exponent = 1 - max_exponent;  // of subnormals and of the smallest normals
    if (magnitude > 0) exponent = std::max(exponent, std::ilogb(magnitude));
    // In units of the last place; nearbyint rounds ties to even. A carry moves into the exponent.
    const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
    if (!std::isfinite(units) ||
        std::ldexp(units, exponent - fraction_bits) >= std::ldexp(1.0, max_exponent + 1))
        return static_cast<std::uint16_t>(sign | infinity);
    const unsigned biased = static_cast<unsigned>(exponent + max_exponent - 1) << fraction_bits;
    return static_cast<std::uint16_t>(sign | (biased + static_cast<unsigned>(units)));
}

float widen(std::uint16_t h, int fraction_bits) {
    const int exponent_bits = 15 - fraction_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1);
    const int fraction = h & ((1 << fraction_bits) - 1);
    double magnitude;
    if (exponent == (1 << exponent_bits) - 1)
        magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                                  : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
        magnitude = std::ldexp(fraction, 1 - bias - fraction_bits);
    else
        magnitude = std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return static_cast<float>((h & 0x8000) != 0 ? -magnitude : magnitude);
}

void f32_to_f16_row(const float* x, std::uint16_t* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = narrow(x[i], 10);
}
void f16_to_f32_row(const std::uint16_t* x, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = widen(x[i], 10);
}
void f32_to_bf16_row(const float* x, std::uint16_t* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = narrow(x[i], 7);
}
void bf16_to_f32_row(const std::uint16_t* x, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = widen(x[i], 7);
}

void logprobs_row(const float* logits, std::int64_t n, std::int32_t token, float* logprob,
                  std::int32_t num_top, std::int32_t* top_ids, float* top_logprobs) {
    constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
    std::vector<double> all(static_cast<std::size_t>(n));
    ref::log_softmax(logits, all.data(), n);
    if (logprob != nullptr)
        *logprob = token >= 0 && token < n
                       ? static_cast<float>(all[static_cast<std::size_t>(token)])
                       : kMinusInf;
    const std::vector<std::int32_t> ids = ref::descending_ids(logits, n);
    for (std::size_t j = 0; j < static_cast<std::size_t>(num_top); ++j) {
        top_ids[j] = j < ids.size() ? ids[j] : -1;
        top_logprobs[j] =
            j < ids.size() ? static_cast<float>(all[static_cast<std::size_t>(ids[j])]) : kMinusInf;
    }
}

std::int32_t sample_row(const float* logits, std::int64_t n, const assay_sample_row* row) {
    return ref::sample(logits, n, *row);
}

}  // namespace

const RowKernels reference_kernels = {
    "reference",  rmsnorm_row,    layernorm_row,  rope_row,        glu_row,
    add_row,      scale_row,      hadamard_row,   softcap_row,     expert_combine_row,
    router_row,   f32_to_f16_row, f16_to_f32_row, f32_to_bf16_row, bf16_to_f32_row,
    logprobs_row, sample_row,
};

}  // namespace cpu
