// Sixteen requests in a cache that holds a few of them: whoever ends, ends with the tokens that it
// has alone.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::FinishReason;
using engine_test::alone;
using engine_test::Loop;
using engine_test::random_request;

class Preemption : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Preemption, LosesNoToken) {
    const std::uint64_t seed = std::random_device{}() % 1'000'000;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng{seed};
    const auto range = [&](std::uint64_t low, std::uint64_t high) {
        return std::uniform_int_distribution<std::uint64_t>{low, high}(rng);
    };
    Loop::Settings settings;
    settings.model = GetParam().first;
    settings.backends = GetParam().second;
    settings.num_blocks = 5;  // 80 tokens; the longest request has 75
    settings.max_num_seqs = 6;
    settings.max_num_batched_tokens = 24;
    settings.max_logit_rows = 8;
    Loop loop{settings};

    const std::vector<std::int32_t> common = random_request(99, seed, 33, 1).prompt;  // two blocks
    std::map<std::uint64_t, base::Request> requests;
    std::multimap<std::size_t, std::uint64_t> arrivals, cancels;
    for (std::uint64_t id = 1; id <= 16; ++id) {
        auto r = random_request(id, seed, range(1, 45), static_cast<std::int32_t>(range(1, 30)));
        r.priority = static_cast<std::int32_t>(range(0, 5)) - 4;
        r.priority = std::max(0, r.priority);
        r.prompt_logprobs = range(0, 5) == 0;
        if (range(0, 1) == 0) std::copy_n(common.begin(), std::min(common.size(), r.prompt.size()), r.prompt.begin());
        requests.emplace(id, r);
        if (id <= 3)
            loop.submit(r);
        else
            arrivals.emplace(range(1, 40), id);
        if (range(0, 4) == 0) cancels.emplace(range(2, 80), id);
    }
    loop.num_open += arrivals.size();  // do not stop before they came
    loop.on_round = [&](std::size_t round) {
        // Late ones too, should everything before them have ended.
        while (!arrivals.empty() && (arrivals.begin()->first <= round || loop.num_open == arrivals.size())) {
            --loop.num_open;
            loop.submit(requests.at(arrivals.begin()->second));
            arrivals.erase(arrivals.begin());
        }
        for (auto [it, end] = cancels.equal_range(round); it != end; ++it) loop.cancel(it->second);
    };
    ASSERT_EQ(loop.run(), "");

    std::size_t survivors = 0;
    for (const auto& [id, r] : requests) {
        const auto& together = loop.outcomes.at(id);
        if (together.finish == FinishReason::cancelled) continue;
        ++survivors;
        const auto solo = alone(r, settings);
        EXPECT_EQ(together.tokens, solo.tokens) << "request " << id;
        EXPECT_EQ(together.finish, solo.finish) << "request " << id;
        ASSERT_EQ(together.prompt.size(), r.prompt_logprobs ? r.prompt.size() : 0U);
        for (std::size_t p = 1; p < together.prompt.size(); ++p)
            EXPECT_EQ(together.prompt[p].logprob, solo.prompt[p].logprob) << "request " << id << ", position " << p;
    }
    EXPECT_GE(survivors, 5U);
    EXPECT_GT(loop.metrics.preemptions.value(), 0U) << "the cache was not tight";
    EXPECT_GT(loop.metrics.wasted_tokens_preempt.value(), 0U);
    EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, Preemption,
                         testing::Values(std::pair{"llama-gqa", "reference"}, std::pair{"llama-gqa", "cpu"},
                                         std::pair{"qwen3", "cpu"}, std::pair{"glm-dsa-shared", "cpu"}),
                         [](const auto& param) {
                             std::string name = std::string{param.param.first} + "_" + param.param.second;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace engine
