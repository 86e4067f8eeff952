// Sequences whose tokens follow rules, beside others that are free.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::FinishReason;
using engine_test::alone;
using engine_test::Loop;
using engine_test::random_request;

constexpr std::int32_t kEnd = 2;
constexpr std::int32_t kLength = 20;  // tokens before the end

/// At place i the tokens of remainder i modulo 7, kLength times; then only kEnd.
class Rules final : public base::TokenRules {
public:
    std::unique_ptr<base::TokenConstraint> start() const override { return std::make_unique<Place>(); }

private:
    class Place final : public base::TokenConstraint {
    public:
        void allow(std::span<std::uint32_t> bits) override {
            std::ranges::fill(bits, 0U);
            for (std::uint32_t t = 0; t < 256; ++t)
                if (is_allowed(static_cast<std::int32_t>(t))) bits[t / 32] |= 1U << (t % 32);
        }
        bool accept(std::int32_t token) override {
            if (!is_allowed(token)) return false;
            is_ended_ = place_++ >= kLength;
            return true;
        }
        bool is_ended() const override { return is_ended_; }

    private:
        [[nodiscard]] bool is_allowed(std::int32_t token) const {
            return place_ < kLength ? token % 7 == place_ % 7 : token == kEnd;
        }
        std::int32_t place_ = 0;
        bool is_ended_ = false;
    };
};

base::Request bound(base::Request request) {
    request.rules = std::make_shared<const Rules>();
    return request;
}

void expect_bound(const engine_test::Outcome& outcome) {
    ASSERT_EQ(outcome.finish, FinishReason::stop) << outcome.detail;
    ASSERT_EQ(outcome.tokens.size(), static_cast<std::size_t>(kLength) + 1);
    for (std::int32_t i = 0; i < kLength; ++i) EXPECT_EQ(outcome.tokens[static_cast<std::size_t>(i)] % 7, i % 7);
    EXPECT_EQ(outcome.tokens.back(), kEnd);
}

/// In a cache that holds a few of them, so that some are computed again.
TEST(Constraint, BindsItsOwnSequenceAndNoOther) {
    Loop::Settings settings;
    settings.num_blocks = 6;
    settings.max_num_seqs = 6;
    settings.max_num_batched_tokens = 24;
    settings.max_logit_rows = 8;
    Loop loop{settings};
    std::vector<base::Request> requests;
    for (std::uint64_t id = 1; id <= 8; ++id) {
        auto r = random_request(id, 7 * id, 3 + 4 * id, 30);
        r.num_logprobs = 1;
        if (id > 4) r.sampling.temperature = 1.5F;
        requests.push_back(id % 2 == 0 ? bound(r) : r);
        loop.submit(requests.back());
    }
    ASSERT_EQ(loop.run(), "");
    EXPECT_GT(loop.metrics.preemptions.value(), 0) << "the cache is meant to be too small";
    for (const auto& r : requests) {
        SCOPED_TRACE(static_cast<std::uint64_t>(r.id));
        const auto& outcome = loop.outcomes.at(static_cast<std::uint64_t>(r.id));
        const auto solo = alone(r, settings);
        EXPECT_EQ(outcome.tokens, solo.tokens);
        ASSERT_EQ(outcome.logprobs.size(), solo.logprobs.size());
        for (std::size_t i = 0; i < solo.logprobs.size(); ++i)
            EXPECT_EQ(outcome.logprobs[i].logprob, solo.logprobs[i].logprob);
        if (r.rules) expect_bound(outcome);
    }
}

TEST(Constraint, LogprobsAreThoseOfTheModelBeforeTheMask) {
    auto free = random_request(1, 3, 9, 1);
    free.num_logprobs = 3;
    const auto of_model = alone(free);
    const auto masked = alone(bound(free));
    ASSERT_EQ(masked.logprobs.size(), 1U);
    EXPECT_EQ(masked.logprobs[0].top, of_model.logprobs[0].top);
}

TEST(Constraint, HasTheLastWordOverBansAndLowerLimits) {
    auto r = bound(random_request(1, 5, 4, 40));
    r.min_tokens = 35;
    r.stop_tokens = {kEnd};
    for (std::int32_t t = 0; t < 256; ++t)
        r.sampling.logit_bias.emplace_back(t, -std::numeric_limits<float>::infinity());
    expect_bound(alone(r));
}

TEST(Constraint, ALimitOnTheLengthCutsTheText) {
    const auto outcome = alone(bound(random_request(1, 5, 4, 6)));
    EXPECT_EQ(outcome.finish, FinishReason::length);
    EXPECT_EQ(outcome.tokens.size(), 6U);
}

}  // namespace
}  // namespace engine
