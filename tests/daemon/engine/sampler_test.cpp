// Which token is drawn. Log-probabilities: sampler_logprobs_test.cpp.

#include "daemon/engine/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "tests/daemon/engine/cpu_device.hpp"

namespace engine {
namespace {

using engine_test::greedy;
using engine_test::SamplerWorld;

constexpr float kNone = -50.0F;

/// [8] logits: `a` for token 2, `b` for token 5, hardly anything elsewhere.
std::vector<float> duel(float a, float b) { return {kNone, kNone, a, kNone, kNone, b, kNone, kNone}; }

struct SamplerTest : testing::Test {
    SamplerWorld world{8, 16, 8};

    /// That an edited logit of token 2 is `expected`: it beats a rival just below, and loses to one
    /// just above. The rival, token 5, is edited by nothing.
    void expect_edited(const base::Request& request, const std::vector<std::int32_t>& generated, float logit,
                       float expected) {
        EXPECT_EQ(world.draw(request, generated, duel(logit, expected - 0.01F)), 2);
        EXPECT_EQ(world.draw(request, generated, duel(logit, expected + 0.01F)), 5);
    }
};

TEST_F(SamplerTest, GreedyTakesTheLargestAndOfEqualsTheFirst) {
    EXPECT_EQ(world.draw(greedy(), {}, {1, 3, 2, 0, 0, 0, 0, 0}), 1);
    EXPECT_EQ(world.draw(greedy(), {}, {1, 3, 2, 3, 0, 0, 0, 3}), 1);
}

TEST_F(SamplerTest, PenaltiesBiasAndRepetitionAddUp) {
    auto r = greedy({2, 0, 2});
    expect_edited(r, {2, 2}, 5.0F, 5.0F);
    r.sampling.presence_penalty = 0.5F;
    expect_edited(r, {2, 2}, 5.0F, 4.5F);
    expect_edited(r, {}, 5.0F, 5.0F);  // the prompt does not count
    r.sampling.frequency_penalty = 0.25F;
    expect_edited(r, {2, 1, 2, 2}, 5.0F, 5.0F - 0.5F - 3 * 0.25F);
    r.sampling.repetition_penalty = 1.25F;
    expect_edited(r, {2, 2}, 5.0F, 5.0F / 1.25F - 0.5F - 2 * 0.25F);
    expect_edited(r, {2, 2}, -5.0F, -5.0F * 1.25F - 0.5F - 2 * 0.25F);
    expect_edited(r, {}, 5.0F, 5.0F / 1.25F);  // of the prompt, repetition alone
    r.sampling.logit_bias = {{2, 3.0F}, {2, -1.0F}};
    expect_edited(r, {2, 2}, 5.0F, 5.0F / 1.25F - 0.5F - 2 * 0.25F + 2.0F);
}

TEST_F(SamplerTest, ANegativePenaltyRewards) {
    auto r = greedy();
    r.sampling.frequency_penalty = -0.5F;
    expect_edited(r, {2, 2}, 1.0F, 2.0F);
}

TEST_F(SamplerTest, ABiasOfAnUnknownTokenIsNothing) {
    auto r = greedy();
    r.sampling.logit_bias = {{-1, 100.0F}, {8, 100.0F}, {1 << 30, 100.0F}, {2, 1.0F}};
    expect_edited(r, {}, 1.0F, 2.0F);
}

TEST_F(SamplerTest, EditsStayWithTheirSequence) {
    auto punished = greedy({2});
    punished.sampling.repetition_penalty = 100.0F;
    world.clear();
    world.add(greedy({2}), {2}, {duel(4, 3)});
    world.add(punished, {2}, {duel(4, 3)});
    world.add(greedy({2}), {2}, {duel(4, 3)});
    world.run();
    EXPECT_EQ(world.sampled[0].token, 2);
    EXPECT_EQ(world.sampled[1].token, 5);
    EXPECT_EQ(world.sampled[2].token, 2);
    for (std::int32_t row = 0; row < 3; ++row) EXPECT_EQ(world.logit(row, 2), 4.0F) << "the model's own logits";
}

TEST_F(SamplerTest, BarsStopTokensBeforeMinTokens) {
    auto r = greedy();
    r.stop_tokens = {2, 4};
    r.min_tokens = 2;
    r.sampling.logit_bias = {{2, 100.0F}};
    EXPECT_EQ(world.draw(r, {}, duel(40, 0)), 5);
    EXPECT_EQ(world.draw(r, {1}, duel(40, 0)), 5);
    EXPECT_EQ(world.draw(r, {1, 1}, duel(40, 0)), 2);
    r.min_tokens = 0;
    EXPECT_EQ(world.draw(r, {}, duel(40, 0)), 2);
}

TEST_F(SamplerTest, TakesMoreEditsThanOneCallDoes) {
    constexpr std::int32_t kVocab = 70'000;
    SamplerWorld large{2, 2, kVocab};
    auto r = greedy();
    r.prompt.resize(kVocab);
    std::iota(r.prompt.begin(), r.prompt.end(), 0);
    r.sampling.repetition_penalty = 2.0F;
    std::vector<float> row(kVocab, 1.0F);
    // Every token is halved; the last of each sequence least of all, if its edit was forgotten.
    row[kVocab - 1] = 1.5F;
    row[3] = 1.6F;
    static_assert(2 * kVocab > static_cast<int>(Sampler::kMaxEdits));
    for (int i = 0; i < 2; ++i) large.add(r, {}, {row});
    large.run();
    EXPECT_EQ(large.sampled[0].token, 3);
    EXPECT_EQ(large.sampled[1].token, 3);
}

TEST_F(SamplerTest, ASequenceThatIsNotCompleteDrawsNothing) {
    world.clear();
    world.add(greedy({1, 2, 3}), {}, {}, false);
    world.add(greedy(), {}, {duel(1, 2)});
    auto scored = greedy({1, 2, 3});
    scored.max_tokens = 0;
    world.add(scored, {}, {duel(1, 2)});
    world.run();
    EXPECT_EQ(world.sampled[0].token, -1);
    EXPECT_EQ(world.sampled[1].token, 5);
    EXPECT_EQ(world.sampled[2].token, -1);
    for (const Sampled& s : world.sampled) EXPECT_FALSE(s.is_broken);
}

TEST_F(SamplerTest, SaysWhichSequenceHasNoFiniteLogit) {
    const std::vector<float> garbage(8, std::numeric_limits<float>::quiet_NaN());
    world.clear();
    world.add(greedy(), {}, {duel(2, 1)});
    auto r = greedy();
    r.num_logprobs = 2;
    world.add(r, {}, {garbage});
    r.sampling.temperature = 1.0F;
    world.add(r, {}, {garbage});
    world.run();
    EXPECT_FALSE(world.sampled[0].is_broken);
    EXPECT_EQ(world.sampled[0].token, 2);
    EXPECT_TRUE(world.sampled[1].is_broken);
    EXPECT_TRUE(world.sampled[2].is_broken);
}

TEST_F(SamplerTest, NamesTheOpThatFails) {
    float value = 0;
    const assay_tensor wrong = sdk::make_tensor(&value, ASSAY_F32, 1, 1);  // not [1, 8]
    Sequence s;
    s.request = greedy();
    s.tokens = s.request.prompt;
    Sequence* const sequences[] = {&s};
    const Scheduler::Rows rows[] = {{0, 1, true}};
    std::vector<Sampled> out;
    EXPECT_FALSE(world.sampler.run(wrong, sequences, rows, out));
    EXPECT_NE(world.sampler.failure().find("gather rows, plugin \"cpu\""), std::string::npos)
        << world.sampler.failure();
}

TEST(Sampler, RefusesADeviceWithoutItsOps) {
    static assay_ops ops = *engine_test::cpu_table().ops;
    ops.supports = [](void*, std::int32_t op, std::int32_t, assay_error* why) -> assay_status {
        return op == ASSAY_OP_LOGPROBS ? sdk::fail(why, ASSAY_UNSUPPORTED, "no logprobs here") : ASSAY_OK;
    };
    assay_device table = engine_test::cpu_table();
    table.ops = &ops;
    try {
        const SamplerWorld world{1, 1, 8, table};
        FAIL() << "accepted";
    } catch (const base::ConfigError& e) {
        EXPECT_NE(std::string{e.what()}.find("no logprobs here"), std::string::npos) << e.what();
    }
}

// ---- seeds --------------------------------------------------------------------------------------

TEST(UniformAt, IsUniformAndKnowsSeedAndPosition) {
    double sum = 0, squares = 0;
    std::set<float> seen;
    for (std::uint64_t seed = 0; seed < 100; ++seed)
        for (std::uint64_t position = 0; position < 100; ++position) {
            const float u = uniform_at(seed, position);
            ASSERT_GE(u, 0.0F);
            ASSERT_LT(u, 1.0F);
            ASSERT_EQ(u, uniform_at(seed, position));
            sum += u;
            squares += double{u} * u;
            seen.insert(u);
        }
    // 10000 draws: mean 1/2 +- 0.003, mean square 1/3 +- 0.003 (one sigma); nearly all distinct.
    EXPECT_NEAR(sum / 1e4, 0.5, 0.015);
    EXPECT_NEAR(squares / 1e4, 1.0 / 3, 0.015);
    EXPECT_GT(seen.size(), 9950U);
}

TEST_F(SamplerTest, ASeedReplaysWhateverTheNeighbours) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng{seed};
    std::uniform_real_distribution<float> logit{-2, 2};
    const auto random_row = [&] {
        std::vector<float> row(8);
        for (float& x : row) x = logit(rng);
        return row;
    };
    auto mine = greedy();
    mine.sampling.temperature = 0.9F;
    mine.sampling.top_p = 0.95F;
    mine.sampling.presence_penalty = 0.3F;
    mine.sampling.seed = 42;
    std::vector<std::int32_t> generated;
    int differs = 0;
    for (int step = 0; step < 50; ++step) {
        const auto row = random_row();
        const std::int32_t alone = world.draw(mine, generated, row);
        world.clear();
        const auto num_before = rng() % 4, num_after = rng() % 4;
        const auto neighbour = [&] {
            auto r = greedy();
            r.sampling.temperature = static_cast<float>(rng() % 3);
            r.sampling.seed = rng();
            r.sampling.repetition_penalty = 1.5F;
            r.num_logprobs = 3;
            world.add(r, {1, 2}, {random_row()});
        };
        for (std::size_t i = 0; i < num_before; ++i) neighbour();
        world.add(mine, generated, {row});
        for (std::size_t i = 0; i < num_after; ++i) neighbour();
        ASSERT_EQ(world.run()[num_before].token, alone) << "step " << step;
        auto other = mine;
        other.sampling.seed = 43;
        differs += world.draw(other, generated, row) != alone ? 1 : 0;
        generated.push_back(alone);
    }
    EXPECT_GT(differs, 5) << "another seed is another text";
}

TEST_F(SamplerTest, DrawsByTheDistribution) {
    // softmax of log p is p: token i with probability p[i] over seeds.
    const std::vector<double> p = {0.4, 0.3, 0.2, 0.1};
    std::vector<float> row(8, -1000.0F);
    for (std::size_t i = 0; i < 4; ++i) row[i] = static_cast<float>(std::log(p[i]));
    auto r = greedy();
    r.sampling.temperature = 1.0F;
    std::vector<int> counts(8);
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
        r.sampling.seed = seed;
        ++counts[static_cast<std::size_t>(world.draw(r, {}, row))];
    }
    // Sigma is at most 0.011 of 2000 draws; seeds are fixed, so this either holds or it does not.
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / 2000.0, p[i], 0.04) << i;
    EXPECT_EQ(std::accumulate(counts.begin() + 4, counts.end(), 0), 0);
}

}  // namespace
}  // namespace engine
