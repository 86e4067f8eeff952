// The scheduler under random arrivals, cancels, pauses and tiny pools, with a cache that is simulated
// slot by slot: whatever the plan says, and whoever computed a block, each sequence must find its own
// tokens behind its own past.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "daemon/engine/scheduler.hpp"

namespace engine {
namespace {

/// What a slot holds. Keys and values depend on every token up to their own.
struct Cached {
    std::vector<std::int32_t> past;  // up to and including the slot's token
    friend bool operator==(const Cached&, const Cached&) = default;
};

/// What is expected of one request, kept apart from the scheduler.
struct Expected {
    std::vector<std::int32_t> tokens;    // prompt and generated
    std::int32_t prompt = 0, max_tokens = 0, priority = 0;
    bool scored = false;
    std::vector<std::int32_t> scores;    // prompt positions whose rows were planned, in order
    std::uint64_t arrival = 0;
    bool is_paused = false;
};

class Simulation {
public:
    explicit Simulation(std::uint64_t seed) : rng_{seed} {
        limits_.block_size = range(1, 6);
        limits_.max_num_seqs = range(1, 6);
        limits_.max_num_batched_tokens = limits_.max_num_seqs + range(0, 12);
        limits_.max_logit_rows = limits_.max_num_seqs + range(0, 6);
        limits_.max_waiting = range(1, 10);
        limits_.context_length = range(4, 60);
        num_blocks_ = range(1, 16);
        pool_.emplace(num_blocks_);
        scheduler_.emplace(limits_, *pool_);
        cache_.resize(static_cast<std::size_t>(num_blocks_ * limits_.block_size));
        longest_ = std::min(limits_.context_length, num_blocks_ * limits_.block_size);
        limits_.prefix_cache = range(0, 4) > 0;
        num_tokens_ = range(0, 1) == 0 ? 1 : 999;  // two different tokens: prefixes meet often
    }

    void run() {
        const int arrivals = range(1, 150);
        for (int i = 0; i < arrivals && !testing::Test::HasFatalFailure(); ++i) {
            if (range(0, 2) == 0) arrive();
            if (range(0, 9) == 0) cancel();
            if (range(0, 5) == 0) pause_or_resume();
            if (range(0, 49) == 0) scheduler_->recompute_all();
            step();
        }
        for (auto& [id, e] : live_) {
            scheduler_->resume(base::RequestId{id});
            e.is_paused = false;
        }
        // Nothing arrives any more: all must finish. Each step moves the first of the order by a
        // token at least, so the bound is what all of them have to do, one after the other.
        std::size_t bound = 10;
        for (const auto& [id, e] : live_)
            bound += 2 * (static_cast<std::size_t>(e.prompt) + static_cast<std::size_t>(e.max_tokens)) + 2;
        for (std::size_t i = 0; !live_.empty() && !testing::Test::HasFatalFailure(); ++i) {
            ASSERT_LT(i, bound) << live_.size() << " requests do not end";
            step();
        }
        ASSERT_EQ(pool_->num_free(), num_blocks_);
        ASSERT_TRUE(scheduler_->is_idle());
        num_found_tokens += scheduler_->num_found_tokens();
    }

    static std::uint64_t num_preemptions, num_found_tokens, num_pauses;  // of all simulations: they must happen

private:
    std::int32_t range(std::int32_t low, std::int32_t high) {
        return std::uniform_int_distribution<std::int32_t>{low, high}(rng_);
    }

    void arrive() {
        base::Request r;
        r.id = base::RequestId{++ids_};
        r.prompt.resize(static_cast<std::size_t>(range(1, longest_ + 2)));
        for (auto& token : r.prompt) token = range(0, num_tokens_);
        r.client = static_cast<std::uint64_t>(range(0, 3));
        r.max_tokens = range(0, 3) == 0 ? range(0, 100) : range(0, 12);
        r.priority = range(0, 3) == 0 ? range(0, 3) : 0;
        r.prompt_logprobs = range(0, 3) == 0;
        Expected e;
        e.tokens = r.prompt;
        e.prompt = static_cast<std::int32_t>(r.prompt.size());
        e.max_tokens = r.max_tokens;
        e.priority = r.priority;
        e.scored = r.prompt_logprobs;
        e.arrival = ids_;
        const bool too_long = e.prompt + (e.max_tokens > 0 ? 1 : 0) > longest_;
        const bool full = scheduler_->num_waiting() >= static_cast<std::size_t>(limits_.max_waiting);
        const auto taken = scheduler_->submit(std::move(r));
        ASSERT_EQ(static_cast<bool>(taken), !too_long && !full);
        if (taken)
            live_.emplace(ids_, std::move(e));
        else
            ASSERT_EQ(taken.error(), base::make_error_code(too_long ? base::Errc::prompt_too_long
                                                                    : base::Errc::queue_full));
    }

    void cancel() {
        if (live_.empty()) return;
        const auto it = std::next(live_.begin(), range(0, static_cast<std::int32_t>(live_.size()) - 1));
        ASSERT_NE(scheduler_->remove(base::RequestId{it->first}), nullptr);
        live_.erase(it);
    }

    void pause_or_resume() {
        if (live_.empty()) return;
        const auto it = std::next(live_.begin(), range(0, static_cast<std::int32_t>(live_.size()) - 1));
        const base::RequestId id{it->first};
        bool& is_paused = it->second.is_paused;
        is_paused = range(0, 2) == 0;  // twice the same has no effect
        is_paused ? scheduler_->pause(id) : scheduler_->resume(id);
        if (it->first == first_ && is_paused) first_ = 0;
        ++num_pauses;
    }

    void step() {
        scheduler_->plan(plan_);
        check_plan();
        check_blocks();
        if (testing::Test::HasFatalFailure()) return;
        const auto sequences = scheduler_->scheduled();
        const auto rows = scheduler_->rows();
        for (std::size_t i = 0; i < sequences.size(); ++i) score(*sequences[i], rows[i], i);
        scheduler_->commit();
        for (std::size_t i = 0; i < sequences.size(); ++i)
            if (rows[i].wants_sample) sample(*sequences[i]);
        num_preemptions += scheduler_->num_preemptions() - preemptions_;
        preemptions_ = scheduler_->num_preemptions();
    }

    void check_plan() {
        const model::StepPlan& p = plan_;
        const auto seqs = static_cast<std::size_t>(p.num_seqs());
        ASSERT_EQ(p.step, ++steps_);
        ASSERT_LE(p.num_tokens(), limits_.max_num_batched_tokens);
        ASSERT_LE(p.num_seqs(), limits_.max_num_seqs);
        ASSERT_LE(static_cast<std::int32_t>(p.logit_rows.size()), limits_.max_logit_rows);
        ASSERT_TRUE(std::is_sorted(p.logit_rows.begin(), p.logit_rows.end(), std::less_equal<>{}));
        ASSERT_EQ(scheduler_->scheduled().size(), seqs);
        ASSERT_EQ(scheduler_->rows().size(), seqs);
        ASSERT_EQ(p.cu_q.size(), seqs + 1);
        ASSERT_EQ(p.cu_q.back(), p.num_tokens());
        ASSERT_EQ(p.positions.size(), p.tokens.size());
        ASSERT_EQ(p.slots.size(), p.tokens.size());
        ASSERT_EQ(p.block_table.size(), seqs * static_cast<std::size_t>(p.max_blocks));
        if (std::any_of(live_.begin(), live_.end(), [](const auto& l) { return !l.second.is_paused; })) {
            ASSERT_GT(p.num_tokens(), 0) << "a step without work";
        }

        // The step's tokens go to their slots; then every sequence reads its whole past.
        std::int32_t next_row = 0;
        for (std::size_t i = 0; i < seqs; ++i) {
            const Sequence& s = *scheduler_->scheduled()[i];
            const auto id = static_cast<std::uint64_t>(s.request.id);
            ASSERT_TRUE(live_.contains(id));
            ASSERT_EQ(s.tokens, live_.at(id).tokens) << "tokens lost";
            ASSERT_FALSE(live_.at(id).is_paused);
            const std::int32_t q = p.cu_q[i + 1] - p.cu_q[i];
            ASSERT_GT(q, 0);
            const bool is_decode = static_cast<std::int32_t>(i) < p.num_decode_seqs;
            ASSERT_EQ(is_decode, s.num_generated() > 0 && s.num_computed == s.num_tokens() - 1);
            if (is_decode) {
                ASSERT_EQ(q, 1);
            }
            for (std::int32_t t = 0; t < q; ++t) {
                const auto at = static_cast<std::size_t>(p.cu_q[i] + t);
                const std::int32_t position = p.kv_len[i] - q + t;
                ASSERT_EQ(p.positions[at], position);
                ASSERT_EQ(p.tokens[at], s.tokens[static_cast<std::size_t>(position)]);
                ASSERT_EQ(p.slots[at], slot(i, position));
                cache_[static_cast<std::size_t>(p.slots[at])] = past(s, position);
            }
            const auto& rows = scheduler_->rows()[i];
            ASSERT_EQ(rows.first, next_row);
            next_row += rows.count;
            ASSERT_EQ(rows.wants_sample, p.kv_len[i] == s.num_tokens());
            if (rows.wants_sample) {
                ASSERT_GT(rows.count, 0);
                ASSERT_EQ(p.logit_rows[static_cast<std::size_t>(rows.first + rows.count - 1)], p.cu_q[i + 1] - 1);
            }
        }
        ASSERT_EQ(next_row, static_cast<std::int32_t>(p.logit_rows.size()));
        for (std::size_t i = 0; i < seqs; ++i) {
            const Sequence& s = *scheduler_->scheduled()[i];
            for (std::int32_t position = 0; position < p.kv_len[i]; ++position) {
                ASSERT_EQ(cache_[static_cast<std::size_t>(slot(i, position))], past(s, position))
                    << "request " << static_cast<std::uint64_t>(s.request.id) << ", position " << position;
            }
            const std::int32_t used = (p.kv_len[i] + limits_.block_size - 1) / limits_.block_size;
            ASSERT_LE(used, p.max_blocks);
            for (std::int32_t b = used; b < p.max_blocks; ++b) ASSERT_EQ(table(i, b), -1);
        }
    }

    [[nodiscard]] static Cached past(const Sequence& s, std::int32_t position) {
        return {{s.tokens.begin(), s.tokens.begin() + position + 1}};
    }
    [[nodiscard]] std::int32_t table(std::size_t i, std::int32_t block) const {
        return plan_.block_table[i * static_cast<std::size_t>(plan_.max_blocks) + static_cast<std::size_t>(block)];
    }
    [[nodiscard]] std::int32_t slot(std::size_t i, std::int32_t position) const {
        return table(i, position / limits_.block_size) * limits_.block_size + position % limits_.block_size;
    }

    /// Each block has the holders that the pool counts, none is lost; decodes run; what waits is in order.
    void check_blocks() {
        std::map<BlockId, std::int32_t> held;
        const auto& live = scheduler_->live();
        ASSERT_EQ(live.size(), live_.size());
        for (const Sequence* s : live) {
            std::set<BlockId> own;
            for (const BlockId id : s->blocks) {
                ASSERT_TRUE(own.insert(id).second) << "block held twice";
                ++held[id];
            }
        }
        for (const auto& [id, count] : held) ASSERT_EQ(pool_->num_holders(id), count);
        ASSERT_EQ(pool_->num_free() + static_cast<std::int32_t>(held.size()), num_blocks_);

        for (std::size_t i = 0; i < scheduler_->num_running(); ++i) {
            const Sequence& s = *live[i];
            if (s.is_decoding()) {
                ASSERT_EQ(s.num_scheduled, 1) << "a decode waits for a prompt";
            }
        }
        const auto key = [&](const Sequence* s) {
            const Expected& e = live_.at(static_cast<std::uint64_t>(s->request.id));
            return std::pair{-e.priority, e.arrival};
        };
        const std::size_t first_paused = live.size() - scheduler_->num_paused();
        for (std::size_t i = scheduler_->num_running(); i < live.size(); ++i) {
            ASSERT_EQ(live[i]->is_paused, i >= first_paused);
            if (i > scheduler_->num_running() && i != first_paused) {
                ASSERT_LT(key(live[i - 1]), key(live[i]));
            }
        }
        // The first that ran is never sent back, unless a more important one came.
        if (scheduler_->num_running() == 0) {
            first_ = 0;
            return;
        }
        if (first_ != 0 && live_.contains(first_)) {
            const auto first = std::find_if(live.begin(), live.end(), [&](const Sequence* s) {
                return static_cast<std::uint64_t>(s->request.id) == first_;
            });
            const bool is_running = first - live.begin() < static_cast<std::ptrdiff_t>(scheduler_->num_running());
            if (key(live[0]) >= key(*first)) {
                ASSERT_TRUE(is_running) << "the first of the order was preempted";
            }
        }
        first_ = static_cast<std::uint64_t>(live[0]->request.id);
    }

    /// Keeps which prompt positions had rows, as the engine does: from the start after a preemption.
    void score(const Sequence& s, const Scheduler::Rows& rows, std::size_t i) {
        Expected& e = live_.at(static_cast<std::uint64_t>(s.request.id));
        if (!e.scored || s.num_generated() > 0) {
            ASSERT_LE(rows.count, 1);
            return;
        }
        if (s.num_computed == 0) e.scores.clear();
        for (std::int32_t r = 0; r < rows.count; ++r)
            e.scores.push_back(plan_.positions[static_cast<std::size_t>(
                plan_.logit_rows[static_cast<std::size_t>(rows.first + r)])]);
        ASSERT_EQ(rows.count, plan_.cu_q[i + 1] - plan_.cu_q[i]);
    }

    void sample(Sequence& s) {
        const auto id = static_cast<std::uint64_t>(s.request.id);
        Expected& e = live_.at(id);
        if (e.scored && s.num_generated() == 0) {
            ASSERT_EQ(static_cast<std::int32_t>(e.scores.size()), e.prompt);
            for (std::int32_t p = 0; p < e.prompt; ++p) ASSERT_EQ(e.scores[static_cast<std::size_t>(p)], p);
        }
        if (e.max_tokens > 0) {
            e.tokens.push_back(range(0, num_tokens_));
            s.tokens.push_back(e.tokens.back());
        }
        if (s.num_generated() < e.max_tokens && s.num_tokens() < scheduler_->max_sequence_tokens()) return;
        ASSERT_NE(scheduler_->remove(s.request.id), nullptr);
        live_.erase(id);
    }

    std::mt19937_64 rng_;
    SchedulerLimits limits_;
    std::int32_t num_blocks_ = 0, longest_ = 0, num_tokens_ = 0;
    std::optional<BlockPool> pool_;
    std::optional<Scheduler> scheduler_;
    model::StepPlan plan_;
    std::vector<Cached> cache_;  // [num_blocks * block_size]
    std::map<std::uint64_t, Expected> live_;
    std::uint64_t ids_ = 0, steps_ = 0, preemptions_ = 0, first_ = 0;
};

std::uint64_t Simulation::num_preemptions = 0;
std::uint64_t Simulation::num_found_tokens = 0;
std::uint64_t Simulation::num_pauses = 0;

TEST(SchedulerProperty, EverySequenceFindsItsOwnTokensAndEnds) {
    const std::uint64_t first = std::random_device{}();
    Simulation::num_preemptions = Simulation::num_found_tokens = Simulation::num_pauses = 0;
    for (std::uint64_t seed = first; seed < first + 500; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Simulation{seed}.run();
        if (HasFailure()) return;
    }
    EXPECT_GT(Simulation::num_preemptions, 100U) << "the pools were not tight, seed " << first;
    EXPECT_GT(Simulation::num_found_tokens, 100U) << "no prefix was shared, seed " << first;
    EXPECT_GT(Simulation::num_pauses, 100U) << "seed " << first;
}

}  // namespace
}  // namespace engine
