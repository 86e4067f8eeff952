#include "daemon/assay/definition.hpp"

#include <algorithm>
#include <cmath>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "reference/pointwise.hpp"

namespace assay {
namespace {

/// Sums in eight interleaved parts, which the compiler keeps in vector registers.
double dot(const float* a, const float* b, std::int64_t n) {
    constexpr std::int64_t kParts = 8;
    double part[kParts] = {};
    std::int64_t i = 0;
    for (; i + kParts <= n; i += kParts)
        for (std::int64_t j = 0; j < kParts; ++j) part[j] += double{a[i + j]} * double{b[i + j]};
    double sum = 0;
    for (; i < n; ++i) sum += double{a[i]} * double{b[i]};
    for (const double p : part) sum += p;
    return sum;
}

double square(double x) { return x * x; }

}  // namespace

WeightIndex::WeightIndex(const model::Weights& weights, std::int64_t num_layers) {
    for (std::size_t r = 0; r < model::kNumRoles; ++r) {
        const auto role = static_cast<model::Role>(r);
        if (const auto& w = weights.whole(role)) places_.emplace(&w.abi, Place{-1, role});
        for (std::int64_t l = 0; l < num_layers; ++l)
            if (const auto& w = weights.layer(l, role)) places_.emplace(&w.abi, Place{l, role});
    }
}

std::optional<Place> WeightIndex::find(const assay_weight* weight) const {
    const auto found = places_.find(weight);
    return found == places_.end() ? std::nullopt : std::optional{found->second};
}

std::vector<float> Definition::rows(Place place, std::span<const std::int32_t> ids) const {
    const model::Weight& w = weight(place);
    std::vector<float> out(ids.size() * static_cast<std::size_t>(w.abi.cols));
    const assay_tensor tensor = sdk::make_tensor(out.data(), ASSAY_F32, ids.size(), w.abi.cols);
    assay_error err = sdk::make_error();
    // The reference device computes in host memory.
    if (w.quant->api().rows(w.quant->self(), &w.abi, ids.data(), static_cast<std::int64_t>(ids.size()), &tensor, stream_.get(),
                            &err) != ASSAY_OK)
        throw base::AssayError{"assay: reference plugin \"" + w.quant->id() + "\", tensor " + w.tensor->name + ": " + err.text};
    stream_.sync();
    return out;
}

std::vector<float> Definition::vector(Place place) const {
    const model::Weight& w = weight(place);
    std::vector<float> out(static_cast<std::size_t>(w.abi.rows * w.abi.cols));
    device_.copy(out.data(), w.abi.data, out.size() * sizeof(float), stream_);
    stream_.sync();
    return out;
}

double rounding_of_x(std::string_view format, std::uint32_t flags) {
    if ((flags & ASSAY_MM_PRECISE) != 0 || format == "f32" || format == "f64") return 0;
    const double own = format == "f16" ? 0x1p-12 : format == "bf16" ? 0x1p-9 : 1.0 / 254;
    return (flags & ASSAY_MM_FINE) != 0 ? std::min(own, 0x1p-14) : own;
}

InputRow::InputRow(const float* x, std::int64_t k) : x_{x}, norm_{std::sqrt(dot(x, x, k))} {
    for (std::int64_t g = 0; g < k; g += kGroup) {
        double peak = 0;
        for (std::int64_t i = g; i < std::min(k, g + kGroup); ++i) peak = std::max(peak, std::fabs(double{x[i]}));
        peak_sq_.push_back(square(peak));
    }
}

WeightRow::WeightRow(const float* w, std::int64_t k) : w_{w}, k_{k} {
    double sum = 0;
    for (std::int64_t g = 0; g < k; g += kGroup) {
        norm_sq_.push_back(dot(w + g, w + g, std::min(kGroup, k - g)));
        sum += norm_sq_.back();
    }
    norm_ = std::sqrt(sum);
}

Estimate WeightRow::product(const InputRow& x, double rounding) const {
    double rounded = 0;
    if (rounding > 0) {
        for (std::size_t g = 0; g < norm_sq_.size(); ++g) rounded += x.peak_sq(g) * norm_sq_[g];
        rounded *= square(rounding);
    }
    // An f32 sum of k terms walks k^(1/2) roundings; a decoded weight and its scale take a few more.
    const double sums = kUnit * (std::sqrt(static_cast<double>(k_)) + 4) * norm_ * x.norm();
    const double value = dot(x.data(), w_, k_);
    return {value, std::sqrt(rounded + square(sums)) + kUnit * std::fabs(value)};
}

Estimate gated(std::int32_t glu, double alpha, double limit, const Estimate& gate, const Estimate& up) {
    const double value = sdk::reference::glu(glu, alpha, limit, gate.value, up.value);
    // The slope of x sigmoid(x) and of gelu is 1.13 at most, that of u or u + 1 is 1; the activation
    // itself is a dozen roundings.
    const double u = std::fabs(up.value) + (glu == ASSAY_GLU_SILU_CLAMP ? 1.0 : 0.0);
    const double g = std::fabs(gate.value);
    const double sigma = std::hypot(1.13 * gate.sigma * (u + up.sigma), g * up.sigma);
    return {value, sigma + 16 * kUnit * std::fabs(value) + 2 * kUnit * g * u};
}

Estimate plus(const Estimate& a, double b) {
    const double value = a.value + b;
    return {value, a.sigma + kUnit * std::fabs(value)};
}

}  // namespace assay
