// From logits to a token: edits, masks, log-probabilities and the draw.

#include "reference/sampling.hpp"

#include "cpu_device.hpp"
#include "reference/pointwise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace device_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr assay_sample_row kGreedy{0, 1, 0, 0, 0.5f};

class Sampling : public testing::TestWithParam<std::string> {
protected:
    std::int32_t draw(const std::vector<float>& logits, const assay_sample_row& row) {
        std::int32_t token[2] = {-7, -7};
        const assay_tensor t = sdk::make_tensor(logits.data(), ASSAY_F32, 1, logits.size());
        EXPECT_EQ(device_.ops().sample(device_.self(), &t, &row, token, device_.stream()),
                  ASSAY_OK);
        EXPECT_EQ(token[1], -7) << "written past the end";
        return token[0];
    }

    CpuDevice device_{GetParam().c_str(), 3};
};

TEST_P(Sampling, GreedyTakesTheLargestAndOfEqualsTheLowestId) {
    EXPECT_EQ(draw({1, 5, 5, 2, 5}, kGreedy), 1);
    EXPECT_EQ(draw({-3}, kGreedy), 0);
    EXPECT_EQ(draw({-0.0f, 0.0f, -1}, kGreedy), 0) << "the zeros are equal";
    EXPECT_EQ(draw({-1, -0.0f, 0.0f}, {1.0f, 1, 0, 1, 0}), 1) << "for a draw as well";
    std::vector<float> wide(150001, -2.0f);
    wide[149999] = wide[77777] = 3.0f;
    EXPECT_EQ(draw(wide, kGreedy), 77777);
}

TEST_P(Sampling, OnlyFiniteLogitsTakePart) {
    const assay_sample_row hot{1.0f, 1, 0, 0, 0.999999f};
    for (const assay_sample_row& row : {kGreedy, hot}) {
        EXPECT_EQ(draw({kNaN, kNaN}, row), -1);
        EXPECT_EQ(draw({kNaN, -kInf, kInf}, row), -1);
        EXPECT_EQ(draw({kNaN, -kInf, 2, kInf}, row), 2);
        EXPECT_EQ(draw(std::vector<float>(1000, kNaN), row), -1);
    }
    std::vector<float> mixed(500, kNaN);
    mixed[3] = -3.4e38f;
    EXPECT_EQ(draw(mixed, hot), 3);
}

TEST_P(Sampling, EveryTokenHasItsIntervalMostLikelyFirst) {
    // Probabilities 1/2, 1/4, 1/8, 1/8 for ids 2, 0, 1, 3.
    const std::vector<float> logits{std::log(2.0f), 0, std::log(4.0f), 0};
    const std::pair<float, std::int32_t> kDraws[] = {{0.0f, 2},  {0.49f, 2},  {0.51f, 0},
                                                     {0.74f, 0}, {0.76f, 1},  {0.87f, 1},
                                                     {0.88f, 3}, {0.9999f, 3}};
    for (const auto& [uniform, id] : kDraws)
        EXPECT_EQ(draw(logits, {1.0f, 1, 0, 0, uniform}), id) << uniform;
}

TEST_P(Sampling, AnIntervalIncludesItsBeginningAndNotItsEnd) {
    const std::vector<float> equal(4, 1.5f);  // a quarter each, exactly
    EXPECT_EQ(draw(equal, {1.0f, 1, 0, 0, 0.25f}), 1);
    EXPECT_EQ(draw(equal, {1.0f, 1, 0, 0, 0.5f}), 2);
    EXPECT_EQ(draw(equal, {1.0f, 1, 0, 0, 0.75f}), 3);
    EXPECT_EQ(draw(equal, {1.0f, 0.5f, 0, 0, 0.9999f}), 1) << "two reach one half";
}

TEST_P(Sampling, CutsAreMadeInTheirOrder) {
    const std::vector<float> logits{std::log(2.0f), 0, std::log(4.0f), 0};
    const auto last = [&](float top_p, float min_p, std::int32_t top_k) {
        return draw(logits, {1.0f, top_p, min_p, top_k, 0.9999999f});
    };
    EXPECT_EQ(last(1, 0, 1), 2) << "top_k 1 is greedy";
    EXPECT_EQ(last(1, 0, 2), 0);
    EXPECT_EQ(last(1, 0, 3), 1) << "of the two equal the lower id is kept";
    EXPECT_EQ(last(1, 0, 99), 3);
    EXPECT_EQ(last(0, 0, 0), 2) << "top_p keeps one at least";
    EXPECT_EQ(last(-1, 0, 0), 2);
    EXPECT_EQ(last(0.4f, 0, 0), 2);
    EXPECT_EQ(last(0.6f, 0, 0), 0);
    EXPECT_EQ(last(0.8f, 0, 0), 1);
    EXPECT_EQ(last(0.999f, 0, 0), 3);
    EXPECT_EQ(last(0.6f, 0, 2), 2) << "2/3 of what top_k left is enough";
    EXPECT_EQ(last(0.7f, 0, 2), 0);
    EXPECT_EQ(last(1, 0.51f, 0), 2);
    EXPECT_EQ(last(1, 0.49f, 0), 0);
    EXPECT_EQ(last(1, 0.26f, 0), 0);
    EXPECT_EQ(last(1, 0.24f, 0), 3);
    EXPECT_EQ(last(1, 1.5f, 0), 2) << "min_p above one keeps the best";
    EXPECT_EQ(last(0.8f, 0.3f, 0), 0) << "min_p cuts after top_p";
}

TEST_P(Sampling, StrangeParametersStillYieldAToken) {
    const std::vector<float> logits{0, 1, 2, 3, 4, 5};
    for (const float odd : {kNaN, -1.0f, 0.0f, 1e-38f})
        EXPECT_EQ(draw(logits, {odd, 1, 0, 0, 0.9f}), 5) << "temperature " << odd;
    EXPECT_EQ(draw(logits, {kInf, 1, 0, 0, 0.99f}), 0) << "uniform over ids 5..0";
    for (const float odd : {kNaN, 1.0f, 2.0f, kInf})
        EXPECT_EQ(draw(logits, {1, 1, 0, 0, odd}), 0) << "uniform " << odd << ": the last";
    EXPECT_EQ(draw(logits, {1, 1, 0, 0, -1.0f}), 5);
    EXPECT_EQ(draw(logits, {1, kNaN, kNaN, -3, 0.0f}), 5);
}

// The definition sorts; the device searches. They must pick the same token unless the draw falls
// within rounding of the border between two.
TEST_P(Sampling, AgreesWithItsDefinition) {
    Rng rng{fresh_seed()};
    std::uniform_real_distribution<float> unit{0, 1};
    int num_borders = 0;
    for (int round = 0; round < 300; ++round) {
        const std::uint64_t seed = rng();
        SCOPED_TRACE(testing::Message() << "round " << round << " seed " << seed);
        Rng local{seed};
        const std::int64_t n = 1 + static_cast<std::int64_t>(local() % 3000);
        std::vector<float> logits = normals(local, n, 0.2f + 4 * unit(local), -3.0f);
        if (round % 3 == 0)  // many equal ones
            for (float& l : logits) l = std::round(l);
        if (round % 5 == 0)
            for (float& l : logits) l = local() % 4 == 0 ? -kInf : l;
        const assay_sample_row row{0.3f + unit(local), round % 2 == 0 ? 1.0f : unit(local),
                                   round % 7 == 0 ? unit(local) * 0.1f : 0.0f,
                                   round % 4 == 0 ? static_cast<std::int32_t>(local() % 100) : 0,
                                   unit(local)};
        const std::int32_t got = draw(logits, row);
        const auto all = sdk::reference::distribution(logits.data(), n, row);
        if (all.empty()) {
            EXPECT_EQ(got, -1);
            continue;
        }
        double before = 0;
        bool is_candidate = false;
        for (const auto& c : all) {
            if (c.id == got) {
                is_candidate = true;
                EXPECT_GT(double{row.uniform}, before - 1e-5);
                EXPECT_LT(double{row.uniform}, before + c.probability + 1e-5);
            }
            before += c.probability;
        }
        // A cut may keep one more or one fewer where its border is within rounding.
        if (!is_candidate) ++num_borders;
        if (got != sdk::reference::sample(logits.data(), n, row)) ++num_borders;
    }
    EXPECT_LE(num_borders, 3);
}

// 20,000 draws against the distribution: with 19 degrees of freedom a chi-square above 60 comes by
// chance less than once in 10^5 runs, and the uniforms are fixed besides.
TEST_P(Sampling, DrawsFollowTheDistribution) {
    Rng rng{20250807};
    const std::vector<float> logits = normals(rng, 20, 1.0f);
    const assay_sample_row rule{0.8f, 1, 0, 0, 0};
    const auto want = sdk::reference::distribution(logits.data(), 20, rule);
    constexpr std::int64_t kDraws = 20000;
    std::vector<float> rows;
    std::vector<assay_sample_row> params(kDraws, rule);
    std::uniform_real_distribution<float> unit{0, 1};
    for (std::int64_t i = 0; i < kDraws; ++i) {
        rows.insert(rows.end(), logits.begin(), logits.end());
        params[static_cast<std::size_t>(i)].uniform = unit(rng);
    }
    std::vector<std::int32_t> tokens(kDraws);
    const assay_tensor t = sdk::make_tensor(rows.data(), ASSAY_F32, kDraws, 20);
    ASSERT_EQ(
        device_.ops().sample(device_.self(), &t, params.data(), tokens.data(), device_.stream()),
        ASSAY_OK);
    std::map<std::int32_t, double> seen;
    for (const std::int32_t token : tokens) ++seen[token];
    double chi_square = 0;
    for (const auto& c : want) {
        const double expected = c.probability * kDraws;
        chi_square += (seen[c.id] - expected) * (seen[c.id] - expected) / expected;
    }
    EXPECT_LT(chi_square, 60);
    EXPECT_GT(chi_square, 3) << "suspiciously close";
}

TEST_P(Sampling, OneRowDoesNotDependOnTheOthers) {
    Rng rng{fresh_seed()};
    constexpr std::int64_t kRows = 9, kVocab = 5000;
    Matrix logits{normals(rng, kRows * kVocab, 3.0f), kRows, kVocab, 17};
    std::vector<assay_sample_row> params;
    std::uniform_real_distribution<float> unit{0, 1};
    for (std::int64_t i = 0; i < kRows; ++i) params.push_back({1.0f, 0.9f, 0, 50, unit(rng)});
    std::vector<std::int32_t> tokens(kRows);
    const assay_tensor t = logits.view();
    ASSERT_EQ(
        device_.ops().sample(device_.self(), &t, params.data(), tokens.data(), device_.stream()),
        ASSAY_OK);
    for (std::int64_t i = 0; i < kRows; ++i)
        EXPECT_EQ(draw(std::vector<float>(logits.row(i), logits.row(i) + kVocab),
                       params[static_cast<std::size_t>(i)]),
                  tokens[static_cast<std::size_t>(i)]);
    EXPECT_EQ(logits.first_broken_guard(), -1);
}

struct Logprobs {
    std::vector<float> chosen, top;
    std::vector<std::int32_t> ids;
};

Logprobs logprobs(const CpuDevice& device, Matrix& logits, const std::vector<std::int32_t>& tokens,
                  std::int32_t num_top) {
    const std::size_t rows = tokens.size(), all = rows * static_cast<std::size_t>(num_top);
    Logprobs got{std::vector<float>(rows, sentinel()), std::vector<float>(all + 1, sentinel()),
                 std::vector<std::int32_t>(all + 1, -7)};
    const assay_tensor t = logits.view();
    EXPECT_EQ(device.ops().logprobs(device.self(), &t, tokens.data(), got.chosen.data(), num_top,
                                    got.ids.data(), got.top.data(), device.stream()),
              ASSAY_OK);
    EXPECT_TRUE(is_sentinel(got.top.back()));
    EXPECT_EQ(got.ids.back(), -7);
    EXPECT_EQ(logits.first_broken_guard(), -1);
    return got;
}

TEST_P(Sampling, LogprobsAgreeWithTheirDefinition) {
    Rng rng{fresh_seed()};
    for (const std::int64_t vocab : {1, 5, 64, 1003, 20000}) {
        constexpr std::int64_t kRows = 3;
        constexpr std::int32_t kTop = 7;
        std::vector<float> values = normals(rng, kRows * vocab, 4.0f);
        if (vocab == 1003)
            for (float& v : values) v = rng() % 5 == 0 ? -kInf : std::round(v);  // ties and masks
        Matrix logits{values, kRows, vocab, 9};
        std::vector<std::int32_t> tokens(kRows);
        for (std::int32_t& t : tokens)
            t = static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(vocab));
        const Logprobs got = logprobs(device_, logits, tokens, kTop);
        for (std::size_t r = 0; r < kRows; ++r) {
            const float* row = logits.row(static_cast<std::int64_t>(r));
            std::vector<double> want(static_cast<std::size_t>(vocab));
            sdk::reference::log_softmax(row, want.data(), vocab);
            const auto ids = sdk::reference::descending_ids(row, vocab);
            const double chosen = want[static_cast<std::size_t>(tokens[r])];
            if (std::isinf(chosen))
                EXPECT_EQ(got.chosen[r], -kInf);
            else
                EXPECT_NEAR(got.chosen[r], chosen, 2e-6 + 6e-8 * std::abs(chosen));
            for (std::size_t j = 0; j < kTop; ++j) {
                const std::size_t at = r * kTop + j;
                if (j >= ids.size()) {
                    EXPECT_EQ(got.ids[at], -1);
                    EXPECT_EQ(got.top[at], -kInf);
                    continue;
                }
                EXPECT_EQ(got.ids[at], ids[j]) << "row " << r << " rank " << j;
                EXPECT_NEAR(got.top[at], want[static_cast<std::size_t>(ids[j])], 2e-6);
            }
        }
    }
}

TEST_P(Sampling, LogprobsOfNothingAreMinusInfinity) {
    Matrix logits{{kNaN, -kInf, kInf, kNaN, 1, 2, 3, kNaN}, 2, 4, 0};
    const Logprobs got = logprobs(device_, logits, {1, 3}, 2);
    EXPECT_EQ(got.chosen[0], -kInf);
    EXPECT_EQ(got.ids[0], -1);
    EXPECT_EQ(got.chosen[1], -kInf) << "the chosen logit is NaN";
    EXPECT_EQ(got.ids[2], 2);
    EXPECT_EQ(got.ids[3], 1);
    const Logprobs outside = logprobs(device_, logits, {-1, 4}, 0);
    EXPECT_EQ(outside.chosen[0], -kInf);
    EXPECT_EQ(outside.chosen[1], -kInf);
}

TEST_P(Sampling, LogprobsWithoutTokensWriteOnlyTheTop) {
    const float row[] = {0, 1};
    std::int32_t id = -7;
    float top = 0;
    const assay_tensor t = sdk::make_tensor(row, ASSAY_F32, 1, 2);
    ASSERT_EQ(device_.ops().logprobs(device_.self(), &t, nullptr, nullptr, 1, &id, &top,
                                     device_.stream()),
              ASSAY_OK);
    EXPECT_EQ(id, 1);
    EXPECT_NEAR(top, -std::log1p(std::exp(-1.0)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Tiers, Sampling, testing::ValuesIn(runnable_tiers()),
                         [](const auto& param) { return param.param; });

TEST(LogitsEdit, AgreesWithItsDefinition) {
    const CpuDevice device;
    Rng rng{fresh_seed()};
    constexpr std::int64_t kRows = 3, kVocab = 100;
    std::vector<float> want = normals(rng, kRows * kVocab, 3.0f);
    Matrix logits{want, kRows, kVocab, 5};
    std::vector<assay_logit_edit> edits;
    for (std::int32_t i = 0; i < 60; ++i)
        edits.push_back(
            {i % 3, i, 1.0f + static_cast<float>(i % 4) * 0.1f, static_cast<float>(i % 5) - 2});
    const assay_tensor t = logits.view();
    ASSERT_EQ(device.ops().logits_edit(device.self(), &t, edits.data(), 60, device.stream()),
              ASSAY_OK);
    sdk::reference::logits_edit(want.data(), kVocab, edits.data(), 60);
    const std::vector<float> got = logits.dense();
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 1e-6f * (1 + std::abs(want[i])));
    EXPECT_EQ(logits.first_broken_guard(), -1);
}

TEST(LogitsEdit, APlaceOutsideIsRefusedAndNothingChanges) {
    const CpuDevice device;
    float row[4] = {1, 2, 3, 4};
    const assay_tensor t = sdk::make_tensor(row, ASSAY_F32, 2, 2);
    for (const assay_logit_edit& bad :
         {assay_logit_edit{0, 2, 1, 5}, {2, 0, 1, 5}, {-1, 0, 1, 5}, {0, -1, 1, 5}}) {
        const assay_logit_edit edits[] = {{0, 0, 1, 7}, bad};
        EXPECT_EQ(device.ops().logits_edit(device.self(), &t, edits, 2, device.stream()),
                  ASSAY_INVALID);
    }
    EXPECT_EQ(row[0], 1);
}

TEST(LogitsMask, ClearsTokensWhoseBitIsZero) {
    const CpuDevice device{"auto", 2};
    Rng rng{fresh_seed()};
    constexpr std::int64_t kVocab = 71, kWords = 3;
    std::vector<std::uint32_t> bits(2 * kWords);
    for (std::uint32_t& word : bits) word = static_cast<std::uint32_t>(rng());
    const std::vector<float> before = normals(rng, 3 * kVocab);
    Matrix logits{before, 3, kVocab, 4};
    const std::int32_t mask_row[] = {1, -1, 0};
    const assay_tensor t = logits.view();
    ASSERT_EQ(
        device.ops().logits_mask(device.self(), &t, bits.data(), kWords, mask_row, device.stream()),
        ASSAY_OK);
    for (std::int64_t r = 0; r < 3; ++r) {
        std::vector<float> want(before.begin() + r * kVocab, before.begin() + (r + 1) * kVocab);
        if (mask_row[r] >= 0)
            sdk::reference::logits_mask(want.data(), kVocab, bits.data() + mask_row[r] * kWords);
        EXPECT_EQ(want, std::vector<float>(logits.row(r), logits.row(r) + kVocab)) << r;
    }
    EXPECT_EQ(logits.first_broken_guard(), -1);
    EXPECT_EQ(
        device.ops().logits_mask(device.self(), &t, bits.data(), 2, mask_row, device.stream()),
        ASSAY_INVALID)
        << "64 bits for 71 tokens";
}

}  // namespace
}  // namespace device_test
