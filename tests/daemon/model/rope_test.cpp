// Frequencies against the golden numbers of architectures.md section 17.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "daemon/model/hparams.hpp"

namespace model {
namespace {

RopeParams yarn(std::int64_t n_rot, double theta, double factor, double beta_fast, double beta_slow) {
    RopeParams r;
    r.n_rot = n_rot;
    r.theta = theta;
    r.scaling = RopeScaling::yarn;
    r.factor = factor;
    r.original_context = 4096;
    r.beta_fast = beta_fast;
    r.beta_slow = beta_slow;
    return r;
}

/// Scaled over unscaled, per pair.
std::vector<double> multipliers(const RopeParams& r) {
    RopeParams plain = r;
    plain.scaling = RopeScaling::none;
    const auto scaled = inverse_frequencies(r, {}), base = inverse_frequencies(plain, {});
    std::vector<double> out;
    for (std::size_t i = 0; i < base.size(); ++i) out.push_back(scaled[i] / base[i]);
    return out;
}

TEST(Rope, UnscaledPairsFallGeometrically) {
    RopeParams r;
    r.n_rot = 8;
    r.theta = 10000.0;
    const auto f = inverse_frequencies(r, {});
    ASSERT_EQ(f.size(), 4U);
    EXPECT_DOUBLE_EQ(f[0], 1.0);
    EXPECT_DOUBLE_EQ(f[1], 0.1);
    EXPECT_DOUBLE_EQ(f[2], 0.01);
    EXPECT_NEAR(f[3], 0.001, 1e-18);
}

TEST(Rope, LinearScalingDividesEveryPair) {
    RopeParams r;
    r.n_rot = 64;
    r.scaling = RopeScaling::linear;
    r.factor = 4;
    for (const double m : multipliers(r)) EXPECT_DOUBLE_EQ(m, 0.25);
}

TEST(Rope, FactorsDivide) {
    RopeParams r;
    r.n_rot = 4;
    const auto base = inverse_frequencies(r, {}), f = inverse_frequencies(r, {1.0F, 8.0F});
    EXPECT_DOUBLE_EQ(f[0], base[0]);
    EXPECT_DOUBLE_EQ(f[1], base[1] / 8);
}

/// DeepSeek: F = 40, correction pairs (10, 23).
TEST(Rope, YarnOfDeepSeek) {
    const auto m = multipliers(yarn(64, 1e4, 40, 32, 1));
    ASSERT_EQ(m.size(), 32U);
    for (std::size_t i = 0; i <= 10; ++i) EXPECT_NEAR(m[i], 1.0, 1e-12) << i;
    EXPECT_NEAR(m[11], 0.925, 1e-12);
    EXPECT_NEAR(m[15], 0.625, 1e-12);
    EXPECT_NEAR(m[20], 0.25, 1e-12);
    EXPECT_NEAR(m[22], 0.1, 1e-12);
    for (std::size_t i = 23; i < 32; ++i) EXPECT_NEAR(m[i], 0.025, 1e-12) << i;
}

/// First pair that is scaled, and first that is scaled whole: the correction range (low, high).
std::pair<std::size_t, std::size_t> range_of(const RopeParams& r) {
    const auto m = multipliers(r);
    std::size_t low = 0, high = 0;
    while (low + 1 < m.size() && m[low + 1] > 1.0 - 1e-9) ++low;
    while (high < m.size() && m[high] > 1.0 / r.factor + 1e-9) ++high;
    return {low, high};
}

TEST(Rope, YarnCorrectionPairs) {
    using Range = std::pair<std::size_t, std::size_t>;
    EXPECT_EQ(range_of(yarn(64, 1e4, 40, 32, 1)), (Range{10, 23}));
    EXPECT_EQ(range_of(yarn(64, 5e4, 32, 32, 1)), (Range{8, 20}));   // Kimi-K2, default betas
    EXPECT_EQ(range_of(yarn(64, 5e4, 32, 1, 1)), (Range{19, 20}));   // Kimi-K2, its own
    EXPECT_EQ(range_of(yarn(64, 1.5e5, 32, 32, 1)), (Range{8, 18})); // gpt-oss, rounded
}

TEST(Rope, YarnWithoutRoundingUsesTheRawRange) {
    // gpt-oss: 8.0928 and 17.3980.
    RopeParams r = yarn(64, 1.5e5, 32, 32, 1);
    r.truncate_range = false;
    const double ramp = 1.0 - (12 - 8.0928) / (17.3980 - 8.0928);
    EXPECT_NEAR(multipliers(r)[12], ramp + (1 - ramp) / 32, 1e-4);
}

TEST(Rope, YarnWithoutExtrapolationIsLinear) {
    RopeParams r = yarn(64, 1e4, 40, 32, 1);
    r.extrapolation = 0;
    for (const double m : multipliers(r)) EXPECT_DOUBLE_EQ(m, 1.0 / 40);
}

TEST(Rope, YarnGain) {
    EXPECT_NEAR(yarn_gain(40, 1.0), 1.3688879, 1e-7);
    EXPECT_NEAR(yarn_gain(40, 0.707), 1.2608038, 1e-7);
    EXPECT_NEAR(yarn_gain(32, 1.0), 1.3465736, 1e-7);
    EXPECT_EQ(yarn_gain(1, 1.0), 1.0);
    EXPECT_EQ(yarn_gain(0.5, 1.0), 1.0);
}

/// Llama 3.1: the factors of its rope_freqs tensor, by the rule of section 1.4, give these.
TEST(Rope, Llama3Factors) {
    RopeParams r;
    r.n_rot = 128;
    r.theta = 500000.0;
    std::vector<float> factors(64, 1.0F);
    const float middle[] = {1.207484F, 1.553415F, 2.026313F, 2.694530F, 3.684253F, 5.257327F};
    for (std::size_t i = 29; i < 35; ++i) factors[i] = middle[i - 29];
    for (std::size_t i = 35; i < 64; ++i) factors[i] = 8.0F;
    const auto f = inverse_frequencies(r, factors);
    for (std::size_t i = 0; i < 64; ++i) {
        const double base = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128);
        const double wave = 2 * std::numbers::pi / base, context = 8192;
        double factor = 1;
        if (wave > context / 1)
            factor = 8;
        else if (wave >= context / 4) {
            const double s = (context / wave - 1) / (4 - 1);
            factor = 1 / ((1 - s) / 8 + s);
        }
        EXPECT_NEAR(f[i] / (base / factor), 1.0, 1e-6) << i;
    }
}

}  // namespace
}  // namespace model
