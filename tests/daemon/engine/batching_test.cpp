// The numbers of a request do not depend on who else is in the step, on any architecture.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using engine_test::golden;
using engine_test::Loop;
using engine_test::Outcome;

class Batching : public testing::TestWithParam<std::pair<const char*, const char*>> {};

/// Three prompts of one text, prefilled in chunks beside each other and beside decodes.
TEST_P(Batching, ChangesNoBit) {
    Loop::Settings settings;
    settings.model = GetParam().first;
    settings.backends = GetParam().second;
    const auto tokens = golden<std::int32_t>(settings.model, "tokens.i32");
    std::vector<base::Request> requests;
    for (const std::size_t begin : {std::size_t{0}, tokens.size() / 2, std::size_t{5}}) {
        base::Request r;
        r.id = base::RequestId{requests.size() + 1};
        r.prompt.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end());
        r.max_tokens = 12;
        r.prompt_logprobs = true;
        r.num_logprobs = 2;
        r.sampling.temperature = 0.0F;
        requests.push_back(r);
    }
    settings.max_num_batched_tokens = 19;
    Loop together{settings};
    for (const auto& r : requests) together.submit(r);
    ASSERT_EQ(together.run(), "");

    settings.max_num_batched_tokens = 64;
    for (const auto& r : requests) {
        SCOPED_TRACE(testing::Message() << "a prompt of " << r.prompt.size());
        const Outcome solo = engine_test::alone(r, settings);
        const Outcome& batched = together.outcomes.at(static_cast<std::uint64_t>(r.id));
        EXPECT_EQ(batched.tokens.size(), 12U);
        EXPECT_EQ(batched.tokens, solo.tokens);
        ASSERT_EQ(batched.prompt.size(), solo.prompt.size());
        for (std::size_t p = 1; p < solo.prompt.size(); ++p) {
            ASSERT_EQ(batched.prompt[p].logprob, solo.prompt[p].logprob) << "position " << p;
            ASSERT_EQ(batched.prompt[p].top, solo.prompt[p].top) << "position " << p;
        }
        ASSERT_EQ(batched.logprobs.size(), solo.logprobs.size());
        for (std::size_t i = 0; i < solo.logprobs.size(); ++i)
            ASSERT_EQ(batched.logprobs[i].logprob, solo.logprobs[i].logprob) << "token " << i;
    }
}

std::vector<std::pair<const char*, const char*>> models() {
    std::vector<std::pair<const char*, const char*>> out;
    for (const char* model :
         {"llama-gqa", "llama3-ropescale-tied", "mixtral", "qwen2-bias", "qwen3", "qwen3moe", "glm4", "glm4moe", "gpt-oss",
          "gemma3", "deepseek2-lite", "deepseek3-groups-yarn", "deepseek32", "glm-dsa", "glm-dsa-shared"})
        out.emplace_back(model, "cpu");
    out.emplace_back("llama-gqa", "reference");
    out.emplace_back("deepseek32", "reference");
    return out;
}

INSTANTIATE_TEST_SUITE_P(Models, Batching, testing::ValuesIn(models()), [](const auto& param) {
    std::string name = std::string{param.param.first} + "_" + param.param.second;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace engine
