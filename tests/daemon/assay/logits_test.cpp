#include "daemon/assay/logits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace {

constexpr std::int64_t kVocab = 100;

std::vector<float> random_logits(std::int64_t rows, std::mt19937& rng) {
    std::normal_distribution<float> normal{0.0F, 3.0F};
    std::vector<float> out(static_cast<std::size_t>(rows * kVocab));
    for (float& x : out) x = normal(rng);
    return out;
}

TEST(LogitDifference, IsNothingBetweenEqualsAndAboutRootTwoBetweenStrangers) {
    std::mt19937 rng{1};
    const auto a = random_logits(20, rng), b = random_logits(20, rng);
    const auto same = assay::compare_logits(a, a, kVocab), other = assay::compare_logits(a, b, kVocab);
    EXPECT_EQ(same.worst, 0);
    EXPECT_NEAR(same.kl, 0, 1e-12);
    EXPECT_EQ(same.top1, 1);
    EXPECT_NEAR(other.typical, std::sqrt(2.0), 0.3);
    EXPECT_GT(other.kl, 1);
}

TEST(LogitDifference, AConstantOnARowIsNoDifference) {
    std::mt19937 rng{2};
    auto a = random_logits(3, rng);
    const auto b = a;
    for (float& x : a) x += 2.0F;
    EXPECT_LT(assay::compare_logits(a, b, kVocab).worst, 1e-6);
}

TEST(LogitDifference, OneBrokenRowIsTheWorstAndNotTheTypical) {
    std::mt19937 rng{3};
    auto a = random_logits(20, rng);
    const auto b = a;
    for (std::int64_t i = 0; i < kVocab; ++i) a[static_cast<std::size_t>(7 * kVocab + i)] = static_cast<float>(i % 13);
    const auto d = assay::compare_logits(a, b, kVocab);
    EXPECT_EQ(d.typical, 0);
    EXPECT_GT(d.worst, 0.5);
    EXPECT_EQ(d.worst_row, 7);
}

TEST(LogitDifference, NaNIsNeverNear) {
    std::mt19937 rng{4};
    auto a = random_logits(3, rng);
    const auto b = a;
    a[150] = std::numeric_limits<float>::quiet_NaN();
    const auto d = assay::compare_logits(a, b, kVocab);
    EXPECT_FALSE(d.is_finite);
    EXPECT_FALSE(d.typical <= 1e9);
}

// The fingerprints that noise has left in public reports: one token whatever the context, and
// probabilities as flat as chance.
TEST(RowStatistics, TellsNoiseFromLanguage) {
    std::vector<float> stuck, flat, peaked;
    std::mt19937 rng{5};
    std::normal_distribution<float> tiny{0.0F, 0.05F};
    for (std::int64_t r = 0; r < 10; ++r)
        for (std::int64_t i = 0; i < kVocab; ++i) {
            stuck.push_back(i == 42 ? 9.0F : 0.0F);
            flat.push_back(tiny(rng));
            peaked.push_back(i == r * 7 ? 9.0F : 0.0F);
        }
    const std::vector<std::int32_t> next{0, 7, 14};
    EXPECT_EQ(assay::row_statistics(stuck, {}, kVocab).distinct, 1);
    EXPECT_GT(assay::row_statistics(flat, {}, kVocab).entropy, 0.99 * std::log(100.0));
    const auto good = assay::row_statistics(peaked, next, kVocab);
    EXPECT_EQ(good.distinct, 10);
    EXPECT_LT(good.entropy, 1);
    ASSERT_EQ(good.logprob.size(), 3U);
    EXPECT_NEAR(good.logprob[2], 9 - std::log(std::exp(9.0) + 99), 1e-6);
}

TEST(Spread, HasBothEndsAndNothingTwice) {
    EXPECT_EQ(assay::spread(5, 9), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(assay::spread(101, 3), (std::vector<std::int32_t>{0, 50, 100}));
    EXPECT_EQ(assay::spread(1, 1), (std::vector<std::int32_t>{0}));
}

TEST(BuiltInProbes, AreFourWithFloorsFarAboveChance) {
    const auto probes = assay::built_in_probes();
    ASSERT_EQ(probes.size(), 4U);
    for (const assay::Probe& probe : probes) {
        EXPECT_GT(probe.floor, -std::log(64.0)) << probe.name;
        EXPECT_FALSE(probe.expected.empty());
    }
}

}  // namespace
