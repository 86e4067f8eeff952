#include "daemon/engine/scheduler.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

namespace engine {
namespace {

using base::Errc;
using base::RequestId;

base::Request request(std::uint64_t id, std::size_t prompt_tokens, std::int32_t max_tokens = 4,
                      std::int32_t priority = 0) {
    base::Request r;
    r.id = RequestId{id};
    r.prompt.resize(prompt_tokens);
    std::iota(r.prompt.begin(), r.prompt.end(), static_cast<std::int32_t>(100 * id));
    r.max_tokens = max_tokens;
    r.priority = priority;
    return r;
}

SchedulerLimits limits() {
    SchedulerLimits l;
    l.max_num_seqs = 4;
    l.max_num_batched_tokens = 8;
    l.max_logit_rows = 4;
    l.max_waiting = 8;
    l.block_size = 4;
    l.context_length = 64;
    return l;
}

struct SchedulerTest : testing::Test {
    void start(const SchedulerLimits& l, std::int32_t num_blocks) {
        scheduler.reset();
        pool.emplace(num_blocks);
        scheduler.emplace(l, *pool);
    }
    void submit(base::Request r) { ASSERT_TRUE(scheduler->submit(std::move(r))); }

    /// One step, with `token` for every sequence that is complete.
    void step(std::int32_t token = 7) {
        scheduler->plan(plan);
        ran.clear();
        const auto sequences = scheduler->scheduled();
        const auto rows = scheduler->rows();
        for (const Sequence* s : sequences) ran.push_back(s->request.id);
        scheduler->commit();
        for (std::size_t i = 0; i < sequences.size(); ++i)
            if (rows[i].wants_sample) sequences[i]->tokens.push_back(token);
    }
    std::vector<RequestId> ids(std::initializer_list<std::uint64_t> values) {
        std::vector<RequestId> out;
        for (const auto v : values) out.push_back(RequestId{v});
        return out;
    }
    Sequence& sequence(std::uint64_t id) {
        for (Sequence* s : scheduler->live())
            if (s->request.id == RequestId{id}) return *s;
        throw std::runtime_error{"no such sequence"};
    }

    std::optional<BlockPool> pool;
    std::optional<Scheduler> scheduler;
    model::StepPlan plan;
    std::vector<RequestId> ran;
};

TEST_F(SchedulerTest, HasNothingToDoWhenIdle) {
    start(limits(), 8);
    step();
    EXPECT_EQ(plan.num_tokens(), 0);
    EXPECT_EQ(plan.num_seqs(), 0);
    EXPECT_EQ(plan.cu_q, std::vector<std::int32_t>{0});
    EXPECT_TRUE(scheduler->is_idle());
}

TEST_F(SchedulerTest, DescribesAStepExactly) {
    start(limits(), 8);
    submit(request(1, 6));
    step();
    submit(request(2, 3));
    step();
    // Request 1 decodes its token 7 at position 6; request 2 is prefilled behind it.
    EXPECT_EQ(plan.step, 2U);
    EXPECT_EQ(plan.num_decode_seqs, 1);
    EXPECT_EQ(plan.tokens, (std::vector<std::int32_t>{7, 200, 201, 202}));
    EXPECT_EQ(plan.positions, (std::vector<std::int32_t>{6, 0, 1, 2}));
    EXPECT_EQ(plan.cu_q, (std::vector<std::int32_t>{0, 1, 4}));
    EXPECT_EQ(plan.kv_len, (std::vector<std::int32_t>{7, 3}));
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{0, 3}));
    ASSERT_EQ(plan.max_blocks, 2);
    ASSERT_EQ(plan.block_table.size(), 4U);
    EXPECT_EQ(plan.block_table[3], -1);  // request 2 has one block
    EXPECT_EQ(plan.slots[0], plan.block_table[1] * 4 + 2);
    EXPECT_EQ(plan.slots[3], plan.block_table[2] * 4 + 2);
}

TEST_F(SchedulerTest, DecodesComeBeforePromptsThatCameEarlier) {
    start(limits(), 16);
    submit(request(1, 30));  // four chunks
    submit(request(2, 2));
    step();
    EXPECT_EQ(ran, ids({1}));
    EXPECT_EQ(plan.num_tokens(), 8);
    auto l = limits();
    l.max_num_batched_tokens = 10;
    start(l, 16);
    submit(request(1, 30));
    submit(request(2, 2, 4, 1));
    step();
    EXPECT_EQ(ran, ids({2, 1}));  // priority
    step();
    EXPECT_EQ(ran, ids({2, 1}));
    EXPECT_EQ(plan.num_decode_seqs, 1);
    EXPECT_EQ(plan.num_tokens(), 10);
    EXPECT_EQ(plan.logit_rows, std::vector<std::int32_t>{0});  // the prompt is not complete
}

TEST_F(SchedulerTest, SplitsAPromptAndSamplesAtItsEnd) {
    start(limits(), 16);
    submit(request(1, 20));
    for (const std::int32_t chunk : {8, 8, 4}) {
        scheduler->plan(plan);
        EXPECT_EQ(plan.num_tokens(), chunk);
        ASSERT_EQ(scheduler->rows().size(), 1U);
        EXPECT_EQ(scheduler->rows()[0].wants_sample, chunk == 4);
        EXPECT_EQ(scheduler->rows()[0].count, chunk == 4 ? 1 : 0);
        scheduler->commit();
    }
}

TEST_F(SchedulerTest, RefusesWhatCanNeverRun) {
    start(limits(), 4);  // 16 tokens, less than the context
    EXPECT_EQ(scheduler->max_sequence_tokens(), 16);
    EXPECT_EQ(scheduler->submit(request(1, 16)).error(), base::make_error_code(Errc::prompt_too_long));
    EXPECT_TRUE(scheduler->submit(request(2, 15)));
    EXPECT_TRUE(scheduler->submit(request(3, 16, 0))) << "a prompt that is only scored needs no further token";
    EXPECT_EQ(scheduler->submit(request(4, 17, 0)).error(), base::make_error_code(Errc::prompt_too_long));
    EXPECT_EQ(scheduler->num_waiting(), 2U);
}

TEST_F(SchedulerTest, RefusesWhenTheQueueIsFull) {
    auto l = limits();
    l.max_waiting = 2;
    start(l, 4);
    submit(request(1, 3));
    submit(request(2, 3));
    EXPECT_EQ(scheduler->submit(request(3, 3)).error(), base::make_error_code(Errc::queue_full));
    EXPECT_EQ(scheduler->num_waiting(), 2U);
    step();  // both are admitted
    EXPECT_TRUE(scheduler->submit(request(4, 3)));
}

TEST_F(SchedulerTest, AdmitsByPriorityThenArrival) {
    auto l = limits();
    l.max_num_seqs = 1;
    start(l, 8);
    submit(request(1, 2, 4, 0));
    submit(request(2, 2, 4, 2));
    submit(request(3, 2, 4, 1));
    submit(request(4, 2, 4, 2));
    std::vector<RequestId> order;
    while (!scheduler->is_idle()) {
        step();
        ASSERT_EQ(ran.size(), 1U);
        order.push_back(ran[0]);
        scheduler->remove(ran[0]);
    }
    EXPECT_EQ(order, ids({2, 4, 3, 1}));
}

TEST_F(SchedulerTest, WaitsForRoomForTheWholePrompt) {
    start(limits(), 4);
    submit(request(1, 7));  // 2 blocks, its 8th token included
    submit(request(2, 9));  // 3 blocks
    step();
    EXPECT_EQ(ran, ids({1}));
    EXPECT_EQ(scheduler->num_running(), 1U);
    step();
    EXPECT_EQ(scheduler->num_running(), 1U);
    scheduler->remove(RequestId{1});
    step();
    EXPECT_EQ(ran, ids({2}));
}

TEST_F(SchedulerTest, PreemptsTheLastAndLosesNothing) {
    auto l = limits();
    l.max_num_batched_tokens = 16;
    l.prefix_cache = false;
    start(l, 4);
    submit(request(1, 7, 9));
    submit(request(2, 7, 9));
    step(7);
    step(8);
    EXPECT_EQ(ran, ids({1, 2}));
    // Both have 8 tokens cached in 2 blocks and a ninth to compute: the pool is empty.
    step(9);
    EXPECT_EQ(ran, ids({1}));
    EXPECT_EQ(scheduler->num_preemptions(), 1U);
    EXPECT_EQ(scheduler->num_wasted_tokens(), 8U);
    const Sequence& two = sequence(2);
    EXPECT_EQ(two.num_computed, 0);
    EXPECT_TRUE(two.blocks.empty());
    EXPECT_EQ(two.tokens, (std::vector<std::int32_t>{200, 201, 202, 203, 204, 205, 206, 7, 8}));
    submit(request(3, 1));
    EXPECT_EQ(scheduler->live()[1]->request.id, RequestId{2}) << "before what has not begun";
    scheduler->remove(RequestId{1});
    step();
    EXPECT_EQ(ran, ids({2, 3}));
    EXPECT_EQ(plan.num_decode_seqs, 0);
    EXPECT_EQ(plan.cu_q, (std::vector<std::int32_t>{0, 9, 10}));
    EXPECT_EQ(plan.tokens[8], 8);
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{8, 9}));
}

TEST_F(SchedulerTest, PreemptsTheLowestPriorityFirst) {
    start(limits(), 5);
    submit(request(1, 7, 9, 0));
    step();
    submit(request(2, 7, 9, 3));
    for (int i = 0; i < 10 && scheduler->num_preemptions() == 0; ++i) step();
    EXPECT_EQ(scheduler->num_preemptions(), 1U);
    EXPECT_TRUE(sequence(1).blocks.empty());
    EXPECT_FALSE(sequence(2).blocks.empty());
    EXPECT_EQ(ran, ids({2}));
}

TEST_F(SchedulerTest, ASequenceThatFillsThePoolFinishes) {
    start(limits(), 4);
    submit(request(1, 3, 100));
    int steps = 0;
    while (sequence(1).num_tokens() < scheduler->max_sequence_tokens()) {
        step();
        ASSERT_EQ(ran, ids({1}));
        ASSERT_LT(++steps, 20);
    }
    EXPECT_EQ(steps, 13);
    EXPECT_EQ(scheduler->num_preemptions(), 0U);
}

TEST_F(SchedulerTest, PromptsThatHoldEachOtherUpGiveWay) {
    auto l = limits();
    l.max_num_batched_tokens = 4;
    l.max_num_seqs = 3;
    start(l, 6);
    submit(request(1, 3, 30));  // decodes, and takes what the prompts were promised
    submit(request(2, 9, 30));
    submit(request(3, 5, 30));
    std::size_t finished = 0;
    for (int i = 0; i < 400 && finished < 3; ++i) {
        step();
        ASSERT_GT(plan.num_tokens(), 0) << "step " << i;
        for (std::uint64_t id = 1; id <= 3; ++id)
            for (const Sequence* s : scheduler->live())
                if (s->request.id == RequestId{id} && s->num_tokens() >= 24) {
                    scheduler->remove(s->request.id);
                    ++finished;
                    break;
                }
    }
    EXPECT_EQ(finished, 3U);
    EXPECT_EQ(pool->num_free(), 6);
}

TEST_F(SchedulerTest, AScoredPromptHasARowForEachToken) {
    start(limits(), 16);  // 4 rows of logits
    auto scored = request(1, 10);
    scored.prompt_logprobs = true;
    submit(std::move(scored));
    submit(request(2, 2));
    step();
    EXPECT_EQ(plan.cu_q, (std::vector<std::int32_t>{0, 4}));  // rows are the limit
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{0, 1, 2, 3}));
    step();
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{0, 1, 2, 3}));
    step();
    EXPECT_EQ(plan.cu_q, (std::vector<std::int32_t>{0, 2, 4}));
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{0, 1, 3}));
    EXPECT_EQ(scheduler->rows()[0].count, 2);
    EXPECT_TRUE(scheduler->rows()[0].wants_sample);
    step();
    EXPECT_EQ(plan.logit_rows, (std::vector<std::int32_t>{0, 1})) << "scored once";
}

TEST_F(SchedulerTest, RemovingFreesBlocks) {
    start(limits(), 8);
    submit(request(1, 6));
    submit(request(2, 2));
    step();
    EXPECT_EQ(pool->num_free(), 5);
    EXPECT_NE(scheduler->remove(RequestId{1}), nullptr);
    EXPECT_EQ(pool->num_free(), 7);
    EXPECT_EQ(scheduler->remove(RequestId{1}), nullptr);
    submit(request(3, 2));
    EXPECT_NE(scheduler->remove(RequestId{3}), nullptr) << "while it waits";
    EXPECT_EQ(scheduler->num_waiting(), 0U);
}

TEST_F(SchedulerTest, ASequenceAllocatesItsVectorsOnce) {
    start(limits(), 16);
    submit(request(1, 3, 40));
    step();
    Sequence& s = sequence(1);
    const auto* tokens = s.tokens.data();
    const auto* blocks = s.blocks.data();
    for (int i = 0; i < 39; ++i) step();
    EXPECT_EQ(s.num_tokens(), 43);
    EXPECT_EQ(s.tokens.data(), tokens);
    EXPECT_EQ(s.blocks.data(), blocks);
}

TEST_F(SchedulerTest, ASecondPromptStartsBehindWhatTheFirstHasComputed) {
    start(limits(), 16);
    base::Request first = request(1, 10), second = request(2, 10);
    second.prompt = first.prompt;
    second.prompt[9] = 5;
    submit(first);
    for (int i = 0; i < 3; ++i) step();
    submit(second);
    step();
    // Two blocks of four are shared; tokens 8 and 9 are computed beside the first one's decode.
    EXPECT_EQ(sequence(2).num_cached, 8);
    EXPECT_EQ(sequence(2).blocks[0], sequence(1).blocks[0]);
    EXPECT_EQ(sequence(2).blocks[1], sequence(1).blocks[1]);
    EXPECT_NE(sequence(2).blocks[2], sequence(1).blocks[2]);
    EXPECT_EQ(plan.tokens, (std::vector<std::int32_t>{7, 108, 5}));
    EXPECT_EQ(plan.positions, (std::vector<std::int32_t>{11, 8, 9}));
    EXPECT_EQ(scheduler->num_queried_tokens(), 20U);
    EXPECT_EQ(scheduler->num_found_tokens(), 8U);
}

TEST_F(SchedulerTest, APromptThatIsKnownAsAWholeStillComputesItsLastToken) {
    start(limits(), 16);
    submit(request(1, 8, 1));
    step();
    scheduler->remove(RequestId{1});
    base::Request again = request(1, 8, 1);
    again.id = RequestId{2};
    submit(again);
    step();
    EXPECT_EQ(sequence(2).num_cached, 4);
    EXPECT_EQ(plan.num_tokens(), 4);
    EXPECT_EQ(plan.logit_rows, std::vector<std::int32_t>{3});
}

TEST_F(SchedulerTest, AScoredPromptIsComputedWhole) {
    SchedulerLimits l = limits();
    l.max_logit_rows = 8;
    start(l, 16);
    submit(request(1, 8, 1));
    step();
    base::Request scored = request(1, 8, 1);
    scored.id = RequestId{2};
    scored.prompt_logprobs = true;
    scheduler->remove(RequestId{1});
    submit(scored);
    step();
    EXPECT_EQ(plan.num_tokens(), 8);
    EXPECT_EQ(scheduler->num_queried_tokens(), 8U);
}

TEST_F(SchedulerTest, TheCacheCanBeOff) {
    SchedulerLimits l = limits();
    l.prefix_cache = false;
    start(l, 16);
    submit(request(1, 8, 1));
    step();
    scheduler->remove(RequestId{1});
    EXPECT_EQ(pool->num_idle(), 0);
}

/// One client queues five prompts before another comes with one: the other is second, not sixth.
TEST_F(SchedulerTest, AClientThatWasGivenLeastComesNext) {
    SchedulerLimits l = limits();
    l.max_num_seqs = 1;
    l.max_logit_rows = 1;
    start(l, 32);
    for (std::uint64_t id = 1; id <= 5; ++id) {
        base::Request r = request(id, 4, 1);
        r.client = 1;
        submit(r);
    }
    base::Request other = request(6, 4, 1);
    other.client = 2;
    submit(other);
    std::vector<RequestId> order;
    while (!scheduler->is_idle()) {
        step();
        order.push_back(ran.at(0));
        scheduler->remove(ran.at(0));
    }
    EXPECT_EQ(order, ids({1, 6, 2, 3, 4, 5}));
}

/// A long prompt of one client does not hold up the short one of another until it is done.
TEST_F(SchedulerTest, PromptsOfTwoClientsShareTheBudgetOverTime) {
    start(limits(), 32);
    base::Request longer = request(1, 40);
    longer.client = 1;
    submit(longer);
    step();
    base::Request shorter = request(2, 6);
    shorter.client = 2;
    submit(shorter);
    step();  // both were given eight tokens so far: who comes late starts level
    EXPECT_EQ(ran, ids({1}));
    step();
    EXPECT_EQ(ran, ids({1, 2}));
    EXPECT_EQ(sequence(2).num_generated(), 1);
    EXPECT_LT(sequence(1).num_computed, 40);
}

TEST_F(SchedulerTest, APausedSequenceKeepsItsBlocksAndGoesOnWhereItWas) {
    start(limits(), 16);
    submit(request(1, 6));
    submit(request(2, 2));
    step();
    const auto blocks = sequence(1).blocks;
    scheduler->pause(RequestId{1});
    scheduler->pause(RequestId{1});
    scheduler->pause(RequestId{99});
    EXPECT_EQ(scheduler->num_paused(), 1U);
    for (int i = 0; i < 3; ++i) {
        step();
        EXPECT_EQ(ran, ids({2}));
    }
    EXPECT_EQ(sequence(1).blocks, blocks);
    scheduler->resume(RequestId{1});
    step();
    EXPECT_EQ(ran, ids({1, 2}));
    EXPECT_EQ(sequence(1).num_tokens(), 8);
    EXPECT_EQ(scheduler->num_preemptions(), 0U);
}

TEST_F(SchedulerTest, APausedSequenceGivesWayBeforeAnyOther) {
    start(limits(), 4);  // 16 tokens
    submit(request(1, 7, 9));
    step();
    scheduler->pause(RequestId{1});
    submit(request(2, 8, 8));
    for (int i = 0; i < 4; ++i) {
        step();
        EXPECT_EQ(ran, ids({2}));
    }
    EXPECT_TRUE(sequence(1).blocks.empty());
    EXPECT_EQ(scheduler->num_preemptions(), 1U);
    scheduler->remove(RequestId{2});
    scheduler->resume(RequestId{1});
    step();
    EXPECT_EQ(ran, ids({1}));
    EXPECT_EQ(sequence(1).num_tokens(), 9);
}

TEST_F(SchedulerTest, PausedSequencesLeaveTheirPlacesToOthers) {
    SchedulerLimits l = limits();
    l.max_num_seqs = 1;
    l.max_logit_rows = 1;
    start(l, 16);
    submit(request(1, 4));
    step();
    submit(request(2, 4));
    step();
    EXPECT_EQ(ran, ids({1}));
    scheduler->pause(RequestId{1});
    step();
    EXPECT_EQ(ran, ids({2}));
}

TEST_F(SchedulerTest, RecomputesEverythingFromItsTokens) {
    start(limits(), 16);
    submit(request(1, 6));
    step();
    step();
    scheduler->recompute_all();
    EXPECT_EQ(pool->num_free(), 16);
    EXPECT_EQ(pool->num_idle(), 0);
    step();
    EXPECT_EQ(plan.num_tokens(), 8);  // six of the prompt and the two generated
    EXPECT_EQ(sequence(1).num_tokens(), 9);
}

}  // namespace
}  // namespace engine
