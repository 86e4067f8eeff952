// Prompt scores against log-softmax of logits that Hugging Face transformers computed.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::FinishReason;
using engine_test::golden;
using engine_test::Loop;

struct Case {
    const char* model;
    std::int32_t batched_tokens, logit_rows;
};

class PromptScores : public testing::TestWithParam<Case> {};

TEST_P(PromptScores, AreThoseOfTheGoldenLogits) {
    constexpr std::size_t kVocab = 512;
    const Case& c = GetParam();
    const auto tokens = golden<std::int32_t>(c.model, "tokens.i32");
    const auto logits = golden<float>(c.model, "logits.f32");
    ASSERT_EQ(logits.size(), tokens.size() * kVocab);

    Loop::Settings settings;
    settings.model = c.model;
    settings.max_num_batched_tokens = c.batched_tokens;
    settings.max_logit_rows = c.logit_rows;
    Loop loop{settings};
    base::Request r;
    r.id = base::RequestId{1};
    r.prompt = tokens;
    r.max_tokens = 0;
    r.prompt_logprobs = true;
    r.num_logprobs = 3;
    loop.submit(r);
    ASSERT_EQ(loop.run(), "");
    const auto& o = loop.outcomes.at(1);
    EXPECT_EQ(o.finish, FinishReason::length);
    EXPECT_TRUE(o.tokens.empty());
    ASSERT_EQ(o.prompt.size(), tokens.size());
    EXPECT_TRUE(std::isnan(o.prompt[0].logprob)) << "nothing precedes the first token";
    EXPECT_TRUE(o.prompt[0].top.empty());
    for (std::size_t p = 0; p + 1 < tokens.size(); ++p) {
        const float* row = logits.data() + p * kVocab;
        const float* best = std::max_element(row, row + kVocab);
        double sum = 0;
        for (std::size_t i = 0; i < kVocab; ++i) sum += std::exp(double{row[i]} - *best);
        const double log_sum = *best + std::log(sum);
        const auto& entry = o.prompt[p + 1];
        EXPECT_NEAR(entry.logprob, row[tokens[p + 1]] - log_sum, 2e-4) << "position " << p;
        ASSERT_EQ(entry.top.size(), 3U);
        EXPECT_NEAR(entry.top[0].second, *best - log_sum, 2e-4) << "position " << p;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, PromptScores,
                         testing::Values(Case{"llama-gqa", 64, 64}, Case{"llama-gqa", 64, 16},
                                         Case{"llama3-ropescale-tied", 17, 32}, Case{"qwen3", 64, 32},
                                         Case{"glm-dsa", 64, 32}, Case{"glm-dsa-shared", 19, 64},
                                         Case{"deepseek2-lite", 64, 64}, Case{"deepseek3-groups-yarn", 19, 32},
                                         Case{"deepseek32", 64, 32}),
                         [](const auto& param) {
                             std::string name = std::string{param.param.model} + "_" +
                                                std::to_string(param.param.batched_tokens) + "_" +
                                                std::to_string(param.param.logit_rows);
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(PromptScores, AreFollowedByTokens) {
    const auto tokens = golden<std::int32_t>("llama-gqa", "tokens.i32");
    const auto logits = golden<float>("llama-gqa", "logits.f32");
    base::Request r;
    r.id = base::RequestId{1};
    r.prompt = tokens;
    r.max_tokens = 2;
    r.prompt_logprobs = true;
    r.num_logprobs = 0;
    r.sampling.temperature = 0.0F;
    const auto o = engine_test::alone(r);
    ASSERT_EQ(o.tokens.size(), 2U);
    EXPECT_EQ(o.logprobs.size(), 2U);
    EXPECT_EQ(o.prompt.size(), tokens.size());
    const float* last = logits.data() + (tokens.size() - 1) * 512;
    EXPECT_EQ(o.tokens[0], std::max_element(last, last + 512) - last);
}

TEST(PromptScores, OfOneTokenAreThatNothingPrecedesIt) {
    auto r = engine_test::random_request(1, 1, 1, 0);
    r.prompt_logprobs = true;
    const auto o = engine_test::alone(r);
    EXPECT_TRUE(o.scored);
    ASSERT_EQ(o.prompt.size(), 1U);
    EXPECT_TRUE(std::isnan(o.prompt[0].logprob));
    EXPECT_EQ(o.finish, FinishReason::length);
}

}  // namespace
}  // namespace engine
