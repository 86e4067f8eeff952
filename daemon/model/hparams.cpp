#include "daemon/model/hparams.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace model {
namespace {

/// The pair index at which a wave makes `rotations` turns over the original context.
double correction_pair(const RopeParams& rope, double rotations) {
    return static_cast<double>(rope.n_rot) *
           std::log(rope.original_context / (2.0 * std::numbers::pi * rotations)) /
           (2.0 * std::log(rope.theta));
}

/// Share of the unscaled angle at pair `i`: 1 below the range, 0 above it.
double yarn_ramp(const RopeParams& rope, double i) {
    double low = correction_pair(rope, rope.beta_fast);
    double high = correction_pair(rope, rope.beta_slow);
    if (rope.truncate_range) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rope.n_rot - 1));
    return 1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
}

}  // namespace

double yarn_gain(double factor, double m) {
    return factor > 1.0 ? 1.0 + 0.1 * m * std::log(factor) : 1.0;
}

double longrope_gain(double factor, double original) {
    return factor > 1.0 && original > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(original)) : 1.0;
}

std::vector<double> inverse_frequencies(const RopeParams& rope, const std::vector<float>& factors) {
    const auto pairs = static_cast<std::size_t>(rope.n_rot / 2);
    std::vector<double> out(pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
        const double base =
            std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.n_rot));
        double f = base;
        if (rope.scaling == RopeScaling::linear) f = base / rope.factor;
        if (rope.scaling == RopeScaling::yarn) {
            const double ramp = rope.extrapolation * yarn_ramp(rope, static_cast<double>(i));
            f = ramp * base + (1.0 - ramp) * base / rope.factor;
        }
        if (!factors.empty()) f /= static_cast<double>(factors[i]);
        out[i] = f;
    }
    return out;
}

}  // namespace model
