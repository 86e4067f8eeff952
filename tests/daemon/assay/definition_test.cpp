#include "daemon/assay/definition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace {

using assay::InputRow;
using assay::Tally;
using assay::WeightRow;

class Products : public testing::Test {
protected:
    std::vector<float> normal(std::size_t n) {
        std::normal_distribution<float> distribution;
        std::vector<float> out(n);
        for (float& x : out) x = distribution(rng_);
        return out;
    }
    const unsigned seed_ = std::random_device{}();
    std::mt19937 rng_{seed_};
};

/// x in 8 bits with one scale for 32 elements, and an f32 sum: the coarsest arithmetic that is allowed.
float rounded_product(const std::vector<float>& x, const std::vector<float>& w) {
    float sum = 0;
    for (std::size_t g = 0; g < x.size(); g += 32) {
        float peak = 0;
        for (std::size_t i = g; i < g + 32; ++i) peak = std::max(peak, std::fabs(x[i]));
        for (std::size_t i = g; i < g + 32; ++i) sum += std::nearbyint(x[i] * 127.0F / peak) * (peak / 127.0F) * w[i];
    }
    return sum;
}

TEST_F(Products, RoundedActivationsStayWithinTheBound) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    for (const std::size_t k : {256U, 4096U}) {
        Tally tally;
        for (int i = 0; i < 300; ++i) {
            const auto x = normal(k), w = normal(k);
            tally.add(rounded_product(x, w),
                      WeightRow{w.data(), static_cast<std::int64_t>(k)}.product(InputRow{x.data(), static_cast<std::int64_t>(k)},
                                                                                assay::rounding_of_x("q4_k", 0)),
                      i, 0);
        }
        EXPECT_TRUE(tally.passed()) << tally.what();
        EXPECT_GT(tally.figure(), 0.1) << "a bound that nothing comes near tells nothing";
    }
}

TEST_F(Products, TheSameArithmeticIsTooCoarseWherePrecisionIsAskedFor) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    for (const auto flags : {ASSAY_MM_PRECISE, ASSAY_MM_FINE}) {
        Tally tally;
        for (int i = 0; i < 100; ++i) {
            const auto x = normal(256), w = normal(256);
            tally.add(rounded_product(x, w), WeightRow{w.data(), 256}.product(InputRow{x.data(), 256}, assay::rounding_of_x("q4_k", flags)), i, 0);
        }
        EXPECT_FALSE(tally.passed());
    }
}

TEST_F(Products, AWeightWithOneBitWrongIsSeen) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    Tally tally;
    for (int i = 0; i < 100; ++i) {
        const auto x = normal(256);
        auto w = normal(256);
        const WeightRow right{w.data(), 256};
        const auto want = right.product(InputRow{x.data(), 256}, assay::rounding_of_x("q4_k", 0));
        for (std::size_t j = 0; j < w.size(); j += 8) w[j] += 0.5F;  // the high bit of every eighth element
        tally.add(rounded_product(x, w), want, i, 0);
    }
    EXPECT_FALSE(tally.passed());
}

TEST_F(Products, GatedErrorsFollowFromThoseOfTheParts) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    std::uniform_real_distribution<double> error{-1, 1};
    for (const std::int32_t kind : {ASSAY_GLU_SILU, ASSAY_GLU_GELU_TANH, ASSAY_GLU_SILU_CLAMP}) {
        Tally tally;
        const auto g = normal(500), u = normal(500);
        for (std::size_t i = 0; i < g.size(); ++i) {
            const double gate = 3.0 * double{g[i]}, up = 3.0 * double{u[i]};
            const auto want = assay::gated(kind, 1.702, 7.0, {gate, 1e-3}, {up, 1e-3});
            const auto got = assay::gated(kind, 1.702, 7.0, {gate + 1e-3 * error(rng_), 0}, {up + 1e-3 * error(rng_), 0});
            tally.add(static_cast<float>(got.value), want, static_cast<std::int64_t>(i), 0);
        }
        EXPECT_TRUE(tally.passed()) << kind << ": " << tally.what();
        EXPECT_GT(tally.figure(), 0.02) << kind;
    }
}

TEST(Rounding, FollowsFormatAndFlags) {
    EXPECT_EQ(assay::rounding_of_x("f32", 0), 0);
    EXPECT_EQ(assay::rounding_of_x("q6_k", ASSAY_MM_PRECISE), 0);
    EXPECT_DOUBLE_EQ(assay::rounding_of_x("q6_k", 0), 1.0 / 254);
    EXPECT_DOUBLE_EQ(assay::rounding_of_x("q6_k", ASSAY_MM_FINE), 0x1p-14);
    EXPECT_DOUBLE_EQ(assay::rounding_of_x("bf16", 0), 0x1p-9);
}

}  // namespace
