// Log-probabilities: of what, from which row, before which edits.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/daemon/engine/cpu_device.hpp"

namespace engine {
namespace {

using engine_test::greedy;
using engine_test::log_softmax;
using engine_test::SamplerWorld;

constexpr std::int32_t kVocab = 32;

struct SamplerLogprobs : testing::Test {
    std::vector<float> random_row() {
        std::uniform_real_distribution<float> logit{-4, 4};
        std::vector<float> row(kVocab);
        for (float& x : row) x = logit(rng);
        return row;
    }
    static std::vector<std::int32_t> by_logit(const std::vector<float>& row) {
        std::vector<std::int32_t> ids(row.size());
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
        std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) {
            return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
        });
        return ids;
    }
    void expect_top(const base::TokenLogprobs& entry, const std::vector<float>& row, std::size_t n) {
        const auto expected = log_softmax(row);
        const auto ids = by_logit(row);
        ASSERT_EQ(entry.top.size(), n) << "seed " << seed;
        for (std::size_t i = 0; i < n; ++i) {
            EXPECT_EQ(entry.top[i].first, ids[i]) << "seed " << seed;
            EXPECT_NEAR(entry.top[i].second, expected[static_cast<std::size_t>(ids[i])], 1e-5);
        }
    }

    const std::uint64_t seed = std::random_device{}();
    std::mt19937_64 rng{seed};
    SamplerWorld world{8, 64, kVocab};
};

TEST_F(SamplerLogprobs, AreOnlyThereWhenAskedFor) {
    world.clear();
    world.add(greedy(), {}, {random_row()});
    world.run();
    EXPECT_TRUE(world.sampled[0].logprobs.empty());
    EXPECT_TRUE(world.sampled[0].prompt_logprobs.empty());
}

TEST_F(SamplerLogprobs, AreThoseBeforeAllEdits) {
    const auto row = random_row();
    const auto expected = log_softmax(row);
    const auto ids = by_logit(row);
    auto r = greedy({ids[0], ids[1]});
    r.sampling.repetition_penalty = 3.0F;
    r.sampling.logit_bias = {{ids[20], 100.0F}};
    r.stop_tokens = {ids[2]};
    r.min_tokens = 5;
    r.num_logprobs = 3;
    r.sampling.temperature = 0.7F;
    r.sampling.top_k = 1;
    world.clear();
    world.add(r, {}, {row});
    world.run();
    ASSERT_EQ(world.sampled[0].token, ids[20]) << "seed " << seed;
    ASSERT_EQ(world.sampled[0].logprobs.size(), 1U);
    EXPECT_NEAR(world.sampled[0].logprobs[0].logprob, expected[static_cast<std::size_t>(ids[20])], 1e-5);
    expect_top(world.sampled[0].logprobs[0], row, 3);
}

TEST_F(SamplerLogprobs, EachSequenceHasAsManyAlternativesAsItAskedFor) {
    std::vector<std::vector<float>> rows;
    world.clear();
    for (const std::int32_t n : {5, -1, 0, 20, 1}) {
        auto r = greedy();
        r.num_logprobs = n;
        rows.push_back(random_row());
        world.add(r, {}, {rows.back()});
    }
    world.run();
    expect_top(world.sampled[0].logprobs.at(0), rows[0], 5);
    EXPECT_TRUE(world.sampled[1].logprobs.empty());
    ASSERT_EQ(world.sampled[2].logprobs.size(), 1U);
    EXPECT_TRUE(world.sampled[2].logprobs[0].top.empty());
    expect_top(world.sampled[3].logprobs.at(0), rows[3], 20);
    expect_top(world.sampled[4].logprobs.at(0), rows[4], 1);
    for (const std::size_t i : {0U, 2U, 3U, 4U}) {
        const auto token = static_cast<std::size_t>(world.sampled[i].token);
        EXPECT_NEAR(world.sampled[i].logprobs[0].logprob, log_softmax(rows[i])[token], 1e-5);
    }
}

TEST_F(SamplerLogprobs, NoMoreAlternativesThanThereAre) {
    std::vector<float> row(kVocab, -std::numeric_limits<float>::infinity());
    row[7] = 1.0F;
    row[9] = 2.0F;
    auto r = greedy();
    r.num_logprobs = 5;
    world.clear();
    world.add(r, {}, {row});
    world.run();
    const auto& top = world.sampled[0].logprobs.at(0).top;
    ASSERT_EQ(top.size(), 2U);
    EXPECT_EQ(top[0].first, 9);
    EXPECT_EQ(top[1].first, 7);
}

/// The row at prompt position p scores token p + 1; the last row is that of the first new token.
TEST_F(SamplerLogprobs, OfAPromptAreAlignedWithTheTokenThatFollows) {
    auto r = greedy({3, 14, 15, 9, 26, 5});
    r.prompt_logprobs = true;
    r.num_logprobs = 2;
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(random_row());

    world.clear();
    world.add(greedy(), {}, {random_row()});  // a neighbour in front
    world.add(r, {}, rows);
    world.run();
    const Sampled& all = world.sampled[1];
    ASSERT_EQ(all.prompt_logprobs.size(), 5U);
    for (std::size_t p = 0; p < 5; ++p) {
        const auto next = static_cast<std::size_t>(r.prompt[p + 1]);
        EXPECT_NEAR(all.prompt_logprobs[p].logprob, log_softmax(rows[p])[next], 1e-5) << p << ", seed " << seed;
        expect_top(all.prompt_logprobs[p], rows[p], 2);
    }
    ASSERT_EQ(all.logprobs.size(), 1U);
    EXPECT_EQ(all.token, by_logit(rows[5])[0]);
    EXPECT_NEAR(all.logprobs[0].logprob, log_softmax(rows[5])[static_cast<std::size_t>(all.token)], 1e-5);
}

TEST_F(SamplerLogprobs, OfAPromptInChunksAreThoseOfTheWhole) {
    auto r = greedy({3, 14, 15, 9, 26, 5});
    r.prompt_logprobs = true;
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(random_row());
    std::vector<float> seen;
    for (const auto& [first, last] : {std::pair{0, 1}, std::pair{1, 5}, std::pair{5, 6}}) {
        world.clear();
        Sequence& s = world.add(r, {}, {rows.begin() + first, rows.begin() + last}, last == 6);
        s.num_computed = first;
        world.run();
        for (const auto& entry : world.sampled[0].prompt_logprobs) seen.push_back(entry.logprob);
        EXPECT_EQ(world.sampled[0].token >= 0, last == 6);
        EXPECT_TRUE(world.sampled[0].logprobs.empty()) << "only the prompt was asked for";
    }
    ASSERT_EQ(seen.size(), 5U);
    for (std::size_t p = 0; p < 5; ++p)
        EXPECT_NEAR(seen[p], log_softmax(rows[p])[static_cast<std::size_t>(r.prompt[p + 1])], 1e-5);
}

TEST_F(SamplerLogprobs, APromptIsNotScoredAgainAfterAPreemption) {
    auto r = greedy({3, 14});
    r.prompt_logprobs = true;
    world.clear();
    Sequence& s = world.add(r, {7}, {random_row()});
    s.num_computed = 0;  // prompt and token are computed again; one row of logits
    world.run();
    EXPECT_TRUE(world.sampled[0].prompt_logprobs.empty());
    EXPECT_GE(world.sampled[0].token, 0);
}

}  // namespace
}  // namespace engine
