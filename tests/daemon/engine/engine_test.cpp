// The step loop, one behaviour a test, on a small model.

#include "daemon/engine/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::Errc;
using base::FinishReason;
using engine_test::alone;
using engine_test::Loop;
using engine_test::Outcome;
using engine_test::random_request;

constexpr std::uint64_t kSeed = 7;

TEST(Engine, EndsARequestByLength) {
    const Outcome o = alone(random_request(1, kSeed, 10, 5));
    EXPECT_EQ(o.tokens.size(), 5U);
    EXPECT_EQ(o.finish, FinishReason::length);
    EXPECT_EQ(o.error, Errc{});
    EXPECT_TRUE(o.logprobs.empty());
    EXPECT_FALSE(o.scored);
}

TEST(Engine, EndsARequestAtTheEndOfTheContext) {
    Loop::Settings settings;
    settings.num_blocks = 2;  // 32 tokens
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 10, 100));
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).tokens.size(), 22U);
    EXPECT_EQ(loop.outcomes.at(1).finish, FinishReason::length);
}

TEST(Engine, EndsARequestAtAStopToken) {
    auto r = random_request(1, kSeed, 10, 12);
    const auto text = alone(r).tokens;
    r.stop_tokens = {text[4]};
    const auto first = std::find(text.begin(), text.end(), text[4]) - text.begin();
    const Outcome stopped = alone(r);
    EXPECT_EQ(stopped.finish, FinishReason::stop);
    EXPECT_EQ(stopped.tokens, (std::vector<std::int32_t>{text.begin(), text.begin() + first + 1}));

    r.min_tokens = static_cast<std::int32_t>(first) + 3;
    const Outcome later = alone(r);
    ASSERT_GE(later.tokens.size(), static_cast<std::size_t>(r.min_tokens));
    for (std::int32_t i = 0; i < r.min_tokens; ++i) EXPECT_NE(later.tokens[static_cast<std::size_t>(i)], text[4]);
}

TEST(Engine, RefusesWhatCannotRun) {
    Loop::Settings settings;
    settings.num_blocks = 1;
    settings.max_waiting = 1;
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 16, 1));  // a token too long
    loop.submit(random_request(2, kSeed, 9, 2));
    loop.submit(random_request(3, kSeed, 9, 2));  // one waits already
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).finish, FinishReason::error);
    EXPECT_EQ(loop.outcomes.at(1).error, Errc::prompt_too_long);
    EXPECT_FALSE(loop.outcomes.at(1).admitted);
    EXPECT_EQ(loop.outcomes.at(2).finish, FinishReason::length);
    EXPECT_EQ(loop.outcomes.at(3).error, Errc::queue_full);
}

TEST(Engine, EndsARequestWhoseTimeIsOver) {
    Loop loop{{}};
    auto late = random_request(1, kSeed, 4, 20);
    late.deadline = base::Clock::now() - std::chrono::seconds{1};
    auto punctual = random_request(2, kSeed, 4, 3);
    punctual.deadline = base::Clock::now() + std::chrono::hours{1};
    loop.submit(late);
    loop.submit(punctual);
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).finish, FinishReason::error);
    EXPECT_EQ(loop.outcomes.at(1).error, Errc::deadline);
    EXPECT_TRUE(loop.outcomes.at(1).tokens.empty());
    EXPECT_EQ(loop.outcomes.at(2).tokens.size(), 3U);
}

TEST(Engine, RefusesWhatWaitedTooLong) {
    Loop::Settings settings;
    settings.max_num_seqs = 1;
    settings.queue_timeout = std::chrono::minutes{10};
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 4, 5));
    auto waits = random_request(2, kSeed, 4, 5);
    waits.received = base::Clock::now() - std::chrono::hours{1};
    loop.submit(waits);
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).tokens.size(), 5U);
    EXPECT_EQ(loop.outcomes.at(2).finish, FinishReason::error);
    EXPECT_EQ(loop.outcomes.at(2).error, Errc::queue_timeout);
    EXPECT_FALSE(loop.outcomes.at(2).admitted);
}

TEST(Engine, WithoutATimeoutWaitsForEver) {
    Loop::Settings settings;
    settings.max_num_seqs = 1;
    settings.queue_timeout = std::chrono::milliseconds{0};
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 4, 5));
    auto waits = random_request(2, kSeed, 4, 5);
    waits.received = base::Clock::now() - std::chrono::hours{1};
    loop.submit(waits);
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(2).finish, FinishReason::length);
}

TEST(Engine, CancellingFreesBlocksBeforeTheNextStep) {
    Loop loop{{}};
    loop.submit(random_request(1, kSeed, 30, 200));
    loop.submit(random_request(2, kSeed, 6, 40));
    loop.submit(random_request(3, kSeed, 20, 100));
    std::size_t had = 0;
    loop.on_round = [&](std::size_t round) {
        if (round == 5) {
            EXPECT_EQ(loop.engine.num_live(), 3U);
            EXPECT_GE(loop.metrics.kv_blocks_used.value(), 3 + 1 + 2);
            had = loop.outcomes.at(1).tokens.size();
            loop.cancel(1);
            loop.cancel(3);
            loop.cancel(3);   // twice
            loop.cancel(99);  // of nobody
        }
        if (round == 6) {
            EXPECT_EQ(loop.engine.num_live(), 1U);
            EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 1) << "request 2 alone, up to 16 tokens";
        }
    };
    EXPECT_EQ(loop.run(), "");
    for (const std::uint64_t id : {1U, 3U}) {
        EXPECT_EQ(loop.outcomes.at(id).finish, FinishReason::cancelled);
        EXPECT_EQ(loop.outcomes.at(id).error, Errc::cancelled);
    }
    EXPECT_EQ(loop.outcomes.at(1).tokens.size(), had);
    EXPECT_EQ(loop.outcomes.at(2).tokens.size(), 40U);
    EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 0);
}

/// The second turn of a conversation: the first one's blocks, bit for bit what it would compute itself.
TEST(Engine, APromptBehindACachedPrefixGivesTheSameTokens) {
    for (const char* model : {"llama-gqa", "glm-dsa-shared"}) {
        SCOPED_TRACE(model);
        Loop::Settings settings;
        settings.model = model;
        Loop loop{settings};
        const auto first = random_request(1, kSeed, 70, 6);
        base::Request second = random_request(2, kSeed + 1, 90, 20);
        std::copy_n(first.prompt.begin(), 70, second.prompt.begin());
        loop.submit(first);
        ++loop.num_open;  // do not stop before the second
        loop.on_round = [&](std::size_t) {
            if (loop.num_open > 1 || loop.outcomes.contains(2)) return;
            --loop.num_open;
            loop.submit(second);
        };
        EXPECT_EQ(loop.run(), "");
        EXPECT_EQ(loop.metrics.prefix_cache_hits_tokens.value(), 64U);
        EXPECT_EQ(loop.metrics.prompt_tokens_prefix_hit.value(), 64U);
        EXPECT_EQ(loop.metrics.prompt_tokens_computed.value(), 70U + 26U);
        EXPECT_EQ(loop.outcomes.at(2).cached_tokens, 64);
        EXPECT_EQ(loop.outcomes.at(2).tokens, alone(second, settings).tokens);
    }
}

TEST(Engine, APausedRequestGetsItsTokensLaterAndTheSame) {
    Loop loop{{}};
    const auto paused = random_request(2, kSeed, 20, 30);
    loop.submit(random_request(1, kSeed, 30, 60));
    loop.submit(paused);
    std::size_t had = 0;
    loop.on_round = [&](std::size_t round) {
        if (round == 5) loop.link.pause(base::RequestId{2}, true);
        if (round == 6) had = loop.outcomes.at(2).tokens.size();
        if (round == 30) {
            EXPECT_EQ(loop.outcomes.at(2).tokens.size(), had);
            EXPECT_EQ(loop.engine.num_live(), 2U);
            loop.link.pause(base::RequestId{2}, false);
        }
    };
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(2).tokens, alone(paused).tokens);
    EXPECT_EQ(loop.metrics.preemptions.value(), 0U);
    EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 0);
}

TEST(Engine, APausedRequestCanBeCancelled) {
    Loop loop{{}};
    loop.submit(random_request(1, kSeed, 30, 40));
    loop.submit(random_request(2, kSeed, 20, 30));
    loop.on_round = [&](std::size_t round) {
        if (round == 5) loop.link.pause(base::RequestId{2}, true);
        if (round == 10) loop.cancel(2);
    };
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(2).finish, FinishReason::cancelled);
    EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 0);
}

TEST(Engine, CancelsWhatStillWaits) {
    Loop::Settings settings;
    settings.max_num_seqs = 1;
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 6, 10));
    loop.submit(random_request(2, kSeed, 6, 10));
    loop.on_round = [&](std::size_t round) {
        if (round == 2) loop.cancel(2);
    };
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).tokens.size(), 10U);
    EXPECT_EQ(loop.outcomes.at(2).finish, FinishReason::cancelled);
    EXPECT_FALSE(loop.outcomes.at(2).admitted);
}

TEST(Engine, EndsEverythingWhenItIsStopped) {
    Loop::Settings settings;
    settings.max_num_seqs = 1;
    Loop loop{settings};
    loop.submit(random_request(1, kSeed, 6, 100));
    loop.submit(random_request(2, kSeed, 6, 10));
    loop.on_round = [&](std::size_t round) {
        if (round != 3) return;
        loop.submit(random_request(3, kSeed, 6, 10));  // not even seen by the engine
        loop.link.stop();
    };
    EXPECT_EQ(loop.run(), "");
    for (const std::uint64_t id : {1U, 2U, 3U}) {
        EXPECT_EQ(loop.outcomes.at(id).finish, FinishReason::error) << id;
        EXPECT_EQ(loop.outcomes.at(id).error, Errc::draining) << id;
    }
    EXPECT_EQ(loop.engine.num_live(), 0U);
    EXPECT_EQ(loop.metrics.kv_blocks_used.value(), 0);
}

TEST(Engine, CountsWhatItDoes) {
    Loop loop{{}};
    loop.submit(random_request(1, kSeed, 100, 5));  // two chunks
    loop.submit(random_request(2, kSeed, 3, 4));
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.metrics.generation_tokens.value(), 9U);
    EXPECT_EQ(loop.metrics.prompt_tokens_computed.value(), 103U);
    EXPECT_EQ(loop.metrics.preemptions.value(), 0U);
    EXPECT_EQ(loop.metrics.wasted_tokens_preempt.value(), 0U);
    EXPECT_EQ(loop.metrics.requests_running.value(), 0);
    EXPECT_EQ(loop.metrics.kv_blocks_free.value() + loop.metrics.kv_blocks_cached.value(), 64);
    EXPECT_EQ(loop.metrics.kv_blocks_cached.value(), 6);  // 104 tokens in blocks of 16; 6 fill none
    EXPECT_EQ(loop.metrics.prefix_cache_queries_tokens.value(), 103U);
    EXPECT_EQ(loop.metrics.prefix_cache_hits_tokens.value(), 0U);
    EXPECT_EQ(loop.metrics.kv_block_size_tokens.value(), 16);
    const auto steps = [](const metrics::Histogram& h) {
        const auto counts = h.snapshot().counts;
        std::uint64_t sum = 0;
        for (const auto n : counts) sum += n;
        return sum;
    };
    EXPECT_EQ(steps(loop.metrics.queue_seconds), 2U);
    EXPECT_EQ(steps(loop.metrics.step_prefill_seconds), 2U);
    EXPECT_EQ(steps(loop.metrics.step_prefill_seconds) + steps(loop.metrics.step_decode_seconds),
              steps(loop.metrics.batch_tokens));
}

/// Seeds, not neighbours, decide what is drawn.
TEST(Engine, ReplaysASeedInAnyCompany) {
    auto r = random_request(1, kSeed, 10, 15);
    r.sampling.temperature = 1.0F;
    r.sampling.seed = 99;
    const auto text = alone(r).tokens;
    Loop loop{{}};
    for (std::uint64_t id = 2; id < 6; ++id) {
        auto other = random_request(id, kSeed, 8 + id, 20);
        other.sampling.temperature = 1.0F;
        other.sampling.seed = id;
        loop.submit(other);
    }
    loop.on_round = [&](std::size_t round) {
        if (round == 3) loop.submit(r);
    };
    EXPECT_EQ(loop.run(), "");
    EXPECT_EQ(loop.outcomes.at(1).tokens, text);
}

}  // namespace
}  // namespace engine
