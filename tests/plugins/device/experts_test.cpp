// Choosing experts, sorting by expert, and adding their results up.

#include "cpu_device.hpp"
#include "reference/pointwise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace device_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

assay_router make_router(std::int32_t gating, std::int32_t top_k, bool normalize, float scale,
                         std::int32_t num_groups = 0, std::int32_t top_groups = 0) {
    return {sizeof(assay_router), gating, top_k, num_groups, top_groups, normalize, scale};
}

struct Choice {
    assay_status status;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
};

Choice choose(const CpuDevice& device, const assay_router& r, const std::vector<float>& logits,
              const std::vector<float>& bias, std::int64_t tokens) {
    const auto experts =
        static_cast<std::int64_t>(logits.size()) / std::max<std::int64_t>(tokens, 1);
    Choice c{ASSAY_OK,
             std::vector<std::int32_t>(static_cast<std::size_t>(tokens * r.top_k + 1), -7),
             std::vector<float>(static_cast<std::size_t>(tokens * r.top_k + 1), sentinel())};
    const assay_tensor l = sdk::make_tensor(logits.data(), ASSAY_F32, tokens, experts);
    const assay_tensor b =
        bias.empty() ? assay_tensor{} : sdk::make_tensor(bias.data(), ASSAY_F32, bias.size());
    const assay_tensor i = sdk::make_tensor(c.ids.data(), ASSAY_I32, tokens, r.top_k);
    const assay_tensor w = sdk::make_tensor(c.weights.data(), ASSAY_F32, tokens, r.top_k);
    c.status = device.ops().router(device.self(), &r, &l, &b, &i, &w, device.stream());
    EXPECT_EQ(c.ids.back(), -7) << "written past the end";
    EXPECT_TRUE(is_sentinel(c.weights.back())) << "written past the end";
    c.ids.pop_back();
    c.weights.pop_back();
    return c;
}

class Router : public testing::TestWithParam<std::string> {
protected:
    CpuDevice device_{GetParam().c_str(), 4};
};

// Figures worked out by hand from the rule of DeepSeek-V3.
TEST_P(Router, GivesTheWorkedExample) {
    const Choice c =
        choose(device_, make_router(2, 2, true, 2.5f), {0, 1, -1, 2}, {0.5f, 0, 0, -0.5f}, 1);
    ASSERT_EQ(c.status, ASSAY_OK);
    EXPECT_EQ(c.ids, (std::vector<std::int32_t>{0, 1}));
    EXPECT_NEAR(c.weights[0], 1.015386f, 1e-6f);
    EXPECT_NEAR(c.weights[1], 1.484614f, 1e-6f);
}

TEST_P(Router, AgreesWithItsDefinition) {
    struct Case {
        const char* name;
        std::int64_t experts;
        bool bias;
        assay_router rule;
    };
    const Case kCases[] = {
        {"qwen3moe", 128, false, make_router(1, 8, true, 1)},
        {"deepseek_v2_lite", 64, false, make_router(1, 6, false, 1)},
        {"deepseek_v2_groups", 160, false, make_router(1, 6, false, 16, 8, 3)},
        {"deepseek_v3_groups", 256, true, make_router(2, 8, true, 2.5f, 8, 4)},
        {"glm_dsa", 256, true, make_router(2, 8, true, 2.5f, 1, 1)},
        {"gpt_oss", 32, false, make_router(3, 4, false, 1)},
        {"sqrt_softplus", 96, true, make_router(4, 5, true, 1.5f)},
        {"all_chosen", 5, true, make_router(2, 5, false, 1)},
        {"one_of_one", 1, false, make_router(1, 1, true, 1)},
        {"groups_of_one", 8, true, make_router(2, 3, true, 1, 8, 4)},
    };
    for (const Case& c : kCases) {
        for (const std::int64_t tokens : {0, 1, 33}) {
            const std::uint64_t seed = fresh_seed();
            SCOPED_TRACE(testing::Message() << c.name << " tokens " << tokens << " seed " << seed);
            Rng rng{seed};
            const std::vector<float> logits = normals(rng, tokens * c.experts, 2.0f);
            const std::vector<float> bias =
                c.bias ? normals(rng, c.experts, 0.2f) : std::vector<float>{};
            if (tokens == 0) {
                const assay_tensor l = sdk::make_tensor(nullptr, ASSAY_F32, 0, c.experts);
                const assay_tensor i = sdk::make_tensor(nullptr, ASSAY_I32, 0, c.rule.top_k);
                const assay_tensor w = sdk::make_tensor(nullptr, ASSAY_F32, 0, c.rule.top_k);
                EXPECT_EQ(device_.ops().router(device_.self(), &c.rule, &l, nullptr, &i, &w,
                                               device_.stream()),
                          ASSAY_OK);
                continue;
            }
            const Choice got = choose(device_, c.rule, logits, bias, tokens);
            ASSERT_EQ(got.status, ASSAY_OK);
            std::vector<std::int32_t> ids(got.ids.size());
            std::vector<float> weights(got.weights.size());
            sdk::reference::router(c.rule, logits.data(), bias.empty() ? nullptr : bias.data(),
                                   tokens, c.experts, ids.data(), weights.data());
            EXPECT_EQ(got.ids, ids);
            EXPECT_TRUE(same_bits(got.weights, weights)) << "both are double, rounded once";
        }
    }
}

TEST_P(Router, OfEqualScoresTheLowerExpertComesFirst) {
    const std::vector<float> logits{1, 3, 3, 1, 3, 1, 3, 1};
    EXPECT_EQ(choose(device_, make_router(1, 5, true, 1), logits, {}, 1).ids,
              (std::vector<std::int32_t>{1, 2, 4, 6, 0}));
    const std::vector<float> equal(12, 0.25f);  // groups tie too
    EXPECT_EQ(choose(device_, make_router(2, 4, true, 1, 4, 2), equal, {}, 1).ids,
              (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST_P(Router, TheBiasChoosesAndDoesNotWeigh) {
    const std::vector<float> logits{2, 1, 0, -1}, bias{-5, 0, 0, 5};
    const Choice c = choose(device_, make_router(2, 2, false, 1), logits, bias, 1);
    EXPECT_EQ(c.ids, (std::vector<std::int32_t>{3, 1}));
    EXPECT_NEAR(c.weights[0], 1 / (1 + std::exp(1.0f)), 1e-6f);
}

TEST_P(Router, AGroupScoresByTwoWithABiasAndByOneWithout) {
    // Group 0 holds the best expert, group 1 the best two together.
    const std::vector<float> logits{3, -4, 2, 2}, zero(4, 0.0f);
    EXPECT_EQ(choose(device_, make_router(2, 1, false, 1, 2, 1), logits, {}, 1).ids[0], 0);
    EXPECT_EQ(choose(device_, make_router(2, 1, false, 1, 2, 1), logits, zero, 1).ids[0], 2);
}

TEST_P(Router, ANaNIsChosenLastAndShowsInItsWeight) {
    const Choice some = choose(device_, make_router(2, 2, false, 1), {kNaN, 1, kNaN, 0}, {}, 1);
    EXPECT_EQ(some.ids, (std::vector<std::int32_t>{1, 3}));
    const Choice all = choose(device_, make_router(1, 2, true, 1), {kNaN, kNaN, kNaN}, {}, 1);
    EXPECT_EQ(all.ids, (std::vector<std::int32_t>{0, 1}));
    EXPECT_TRUE(std::isnan(all.weights[0]) && std::isnan(all.weights[1]));
}

TEST_P(Router, RefusesARuleThatCannotBeKept) {
    const std::vector<float> logits(12, 0.0f);
    for (const assay_router& bad :
         {make_router(0, 2, true, 1), make_router(5, 2, true, 1), make_router(1, 13, true, 1),
          make_router(2, 2, true, 1, 5, 2), make_router(2, 2, true, 1, 4, 5),
          make_router(2, 7, true, 1, 4, 2), make_router(2, 2, true, 1, 4, 0)})
        EXPECT_EQ(choose(device_, bad, logits, {}, 1).status, ASSAY_INVALID);
    EXPECT_EQ(choose(device_, make_router(2, 2, true, 1), logits, {1, 2, 3}, 1).status,
              ASSAY_INVALID)
        << "a bias of the wrong length";
}

INSTANTIATE_TEST_SUITE_P(Tiers, Router, testing::ValuesIn(runnable_tiers()),
                         [](const auto& param) { return param.param; });

struct Sorted {
    assay_status status;
    std::vector<std::int32_t> slot_of, row_ids, offset;
};

Sorted sort(const CpuDevice& device, const std::vector<std::int32_t>& ids, std::int64_t top_k,
            std::int32_t experts) {
    const auto pairs = ids.size();
    Sorted s{ASSAY_OK, std::vector<std::int32_t>(pairs, -7), std::vector<std::int32_t>(pairs, -7),
             std::vector<std::int32_t>(static_cast<std::size_t>(experts) + 1, -7)};
    const assay_tensor t =
        sdk::make_tensor(ids.data(), ASSAY_I32, static_cast<std::int64_t>(pairs) / top_k, top_k);
    s.status = device.ops().expert_sort(device.self(), &t, experts, s.slot_of.data(),
                                        s.row_ids.data(), s.offset.data(), device.stream());
    return s;
}

TEST(ExpertSort, AgreesWithItsDefinition) {
    const CpuDevice device;
    Rng rng{fresh_seed()};
    for (const std::int64_t tokens : {0, 1, 2, 65}) {
        constexpr std::int32_t kExperts = 17;
        constexpr std::int64_t kTopK = 3;
        std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * kTopK));
        for (std::int32_t& id : ids) id = static_cast<std::int32_t>(rng() % kExperts);
        const Sorted got = sort(device, ids, kTopK, kExperts);
        ASSERT_EQ(got.status, ASSAY_OK);
        Sorted want = got;
        sdk::reference::expert_sort(ids.data(), tokens, kTopK, kExperts, want.slot_of.data(),
                                    want.row_ids.data(), want.offset.data());
        EXPECT_EQ(got.slot_of, want.slot_of);
        EXPECT_EQ(got.row_ids, want.row_ids);
        EXPECT_EQ(got.offset, want.offset);
    }
}

TEST(ExpertSort, PutsEveryPairInItsExpertsRangeOnce) {
    const CpuDevice device;
    const Sorted s = sort(device, {2, 0, 1, 2, 2, 0}, 2, 4);
    EXPECT_EQ(s.offset, (std::vector<std::int32_t>{0, 2, 3, 6, 6}));
    EXPECT_EQ(s.slot_of, (std::vector<std::int32_t>{3, 0, 2, 4, 5, 1}));
    EXPECT_EQ(s.row_ids, (std::vector<std::int32_t>{0, 2, 1, 0, 1, 2}));
}

TEST(ExpertSort, RefusesAnExpertThatIsNotThere) {
    const CpuDevice device;
    EXPECT_EQ(sort(device, {0, 4}, 2, 4).status, ASSAY_INVALID);
    EXPECT_EQ(sort(device, {-1, 0}, 2, 4).status, ASSAY_INVALID);
}

TEST(ExpertCombine, AgreesWithItsDefinition) {
    for (const std::string& tier : runnable_tiers()) {
        const CpuDevice device{tier.c_str(), 3};
        for (const std::int64_t n : {1, 5, 64, 515}) {
            for (const bool accumulate : {false, true}) {
                const std::uint64_t seed = fresh_seed();
                SCOPED_TRACE(testing::Message() << tier << " n " << n << " seed " << seed);
                Rng rng{seed};
                constexpr std::int64_t kTokens = 7, kTopK = 4;
                Matrix y{normals(rng, kTokens * kTopK * n), kTokens * kTopK, n, 3};
                const std::vector<float> before = normals(rng, kTokens * n);
                const std::vector<float> weights = normals(rng, kTokens * kTopK);
                std::vector<std::int32_t> slots(kTokens * kTopK);
                std::iota(slots.begin(), slots.end(), 0);
                std::shuffle(slots.begin(), slots.end(), rng);

                Matrix out{before, kTokens, n, 2};
                if (!accumulate) out = Matrix{kTokens, n, 2};
                const assay_tensor ty = y.view(), to = out.view();
                const assay_tensor tw = sdk::make_tensor(weights.data(), ASSAY_F32, kTokens, kTopK);
                ASSERT_EQ(device.ops().expert_combine(device.self(), &ty, slots.data(), &tw,
                                                      accumulate, &to, device.stream()),
                          ASSAY_OK);
                std::vector<float> want = before;
                sdk::reference::expert_combine(y.dense().data(), slots.data(), weights.data(),
                                               accumulate, want.data(), kTokens, kTopK, n);
                const std::vector<float> got = out.dense();
                for (std::size_t i = 0; i < got.size(); ++i)
                    ASSERT_NEAR(got[i], want[i], 3e-6f) << i;  // 9 roundings of sums up to 12
                EXPECT_EQ(out.first_broken_guard(), -1);
            }
        }
    }
}

TEST(ExpertCombine, RefusesASlotThatIsNotThere) {
    const CpuDevice device;
    float y[4] = {}, weight[1] = {1}, out[2] = {5, 6};
    const assay_tensor ty = sdk::make_tensor(y, ASSAY_F32, 2, 2);
    const assay_tensor tw = sdk::make_tensor(weight, ASSAY_F32, 1, 1);
    const assay_tensor to = sdk::make_tensor(out, ASSAY_F32, 1, 2);
    for (const std::int32_t slot : {-1, 2})
        EXPECT_EQ(device.ops().expert_combine(device.self(), &ty, &slot, &tw, false, &to,
                                              device.stream()),
                  ASSAY_INVALID);
    EXPECT_EQ(out[0], 5);
}

TEST(AddBias, OfEachExpertGoesToItsSlots) {
    const CpuDevice device{"auto", 3};
    Rng rng{fresh_seed()};
    constexpr std::int64_t kSlots = 9, kWidth = 21;
    const std::vector<std::int32_t> offset{0, 0, 4, 4, 7, 9};
    const std::vector<float> x = normals(rng, kSlots * kWidth), bias = normals(rng, 5 * kWidth);
    Matrix rows{x, kSlots, kWidth, 4};
    const assay_tensor t = rows.view();
    const assay_tensor b = sdk::make_tensor(bias.data(), ASSAY_F32, 5, kWidth);
    ASSERT_EQ(device.ops().add_bias(device.self(), &t, &b, offset.data(), device.stream()),
              ASSAY_OK);
    const std::int64_t expert_of[] = {1, 1, 1, 1, 3, 3, 3, 4, 4};
    for (std::int64_t s = 0; s < kSlots; ++s)
        for (std::int64_t i = 0; i < kWidth; ++i)
            EXPECT_EQ(rows.row(s)[i],
                      x[static_cast<std::size_t>(s * kWidth + i)] +
                          bias[static_cast<std::size_t>(expert_of[s] * kWidth + i)]);
    EXPECT_EQ(rows.first_broken_guard(), -1);

    const std::vector<std::int32_t> backwards{0, 5, 4, 4, 7, 9}, too_far{0, 0, 4, 4, 7, 10};
    EXPECT_EQ(device.ops().add_bias(device.self(), &t, &b, backwards.data(), device.stream()),
              ASSAY_INVALID);
    EXPECT_EQ(device.ops().add_bias(device.self(), &t, &b, too_far.data(), device.stream()),
              ASSAY_INVALID);
}

}  // namespace
}  // namespace device_test
