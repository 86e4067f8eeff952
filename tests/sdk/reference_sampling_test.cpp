#include "reference/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace {

namespace ref = sdk::reference;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Probabilities 1/2, 1/4, 1/8, 1/8 for ids 2, 0, 1, 3.
const float kLogits[] = {std::log(2.0f), 0, std::log(4.0f), 0};

std::vector<std::int32_t> kept(const assay_sample_row& row) {
    std::vector<std::int32_t> ids;
    double sum = 0;
    for (const ref::Candidate& c : ref::distribution(kLogits, 4, row)) {
        ids.push_back(c.id);
        sum += c.probability;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    return ids;
}

using Ids = std::vector<std::int32_t>;

TEST(SamplingDefinition, OrdersByProbabilityThenId) {
    const auto all = ref::distribution(kLogits, 4, {1, 1, 0, 0, 0});
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(kept({1, 1, 0, 0, 0}), (Ids{2, 0, 1, 3}));
    EXPECT_NEAR(all[0].probability, 0.5, 1e-7);
    EXPECT_NEAR(all[3].probability, 0.125, 1e-7);
}

TEST(SamplingDefinition, TemperatureIsAPower) {
    const auto cold = ref::distribution(kLogits, 4, {0.5f, 1, 0, 0, 0});
    EXPECT_NEAR(cold[0].probability / cold[1].probability, 4, 1e-6);
    EXPECT_EQ(kept({0, 1, 0, 0, 0}), (Ids{2}));
}

TEST(SamplingDefinition, EachCutWorksOnWhatTheOneBeforeLeft) {
    EXPECT_EQ(kept({1, 1, 0, 3, 0}), (Ids{2, 0, 1}));
    EXPECT_EQ(kept({1, 0.74f, 0, 0, 0}), (Ids{2, 0}));
    EXPECT_EQ(kept({1, 0.76f, 0, 0, 0}), (Ids{2, 0, 1}));
    EXPECT_EQ(kept({1, 0, 0, 0, 0}), (Ids{2}));
    EXPECT_EQ(kept({1, 1, 0.3f, 0, 0}), (Ids{2, 0}));
    EXPECT_EQ(kept({1, 0.6f, 0, 2, 0}), (Ids{2})) << "2/3 after top_k";
    EXPECT_EQ(kept({1, 0.6f, 0, 0, 0}), (Ids{2, 0})) << "1/2 without";
}

TEST(SamplingDefinition, DrawsByTheInverseOfTheCumulative) {
    const std::pair<float, std::int32_t> kDraws[] = {
        {0, 2}, {0.49f, 2}, {0.51f, 0}, {0.8f, 1}, {0.9f, 3}};
    for (const auto& [uniform, id] : kDraws)
        EXPECT_EQ(ref::sample(kLogits, 4, {1, 1, 0, 0, uniform}), id) << uniform;
}

TEST(SamplingDefinition, WithoutAFiniteLogitThereIsNoToken) {
    const float broken[] = {NAN, kInf, -kInf};
    EXPECT_EQ(ref::sample(broken, 3, {1, 1, 0, 0, 0.5f}), -1);
    EXPECT_EQ(ref::sample(broken, 3, {0, 1, 0, 0, 0.5f}), -1);
    const float one[] = {NAN, kInf, -5};
    EXPECT_EQ(ref::sample(one, 3, {1, 1, 0, 0, 0.5f}), 2);
}

TEST(SamplingDefinition, EditsPunishRepetitionInBothSigns) {
    float logits[] = {4, -4, 0, 1};
    const assay_logit_edit edits[] = {{0, 0, 2, 0}, {0, 1, 2, 0.5f}, {1, 1, 1, -3}};
    ref::logits_edit(logits, 2, edits, 3);
    EXPECT_EQ(logits[0], 2);
    EXPECT_EQ(logits[1], -7.5f);
    EXPECT_EQ(logits[2], 0);
    EXPECT_EQ(logits[3], -2);
}

TEST(SamplingDefinition, MaskKeepsTokensWhoseBitIsSet) {
    std::vector<float> logits(40, 1);
    const std::uint32_t bits[] = {0x80000001u, 0x2u};
    ref::logits_mask(logits.data(), 40, bits);
    for (int i = 0; i < 40; ++i)
        EXPECT_EQ(logits[static_cast<std::size_t>(i)], i == 0 || i == 31 || i == 33 ? 1 : -kInf)
            << i;
}

}  // namespace
