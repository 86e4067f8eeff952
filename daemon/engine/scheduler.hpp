#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/error.hpp"
#include "daemon/engine/block_pool.hpp"
#include "daemon/engine/fair_share.hpp"
#include "daemon/engine/prefix_cache.hpp"
#include "daemon/engine/sequence.hpp"
#include "daemon/model/step_plan.hpp"

namespace engine {

struct SchedulerLimits {
    std::int32_t max_num_seqs = 64;             ///< sequences in one step
    std::int32_t max_num_batched_tokens = 512;  ///< tokens in one step, prefill and decode together
    std::int32_t max_logit_rows = 64;           ///< at least max_num_seqs
    std::int32_t max_waiting = 256;             ///< sequences that wait, preempted ones included
    std::int32_t block_size = 32;               ///< tokens
    std::int32_t context_length = 0;            ///< tokens of one sequence, prompt and generated
    std::chrono::milliseconds queue_timeout{60'000};  ///< a request not begun by then is refused; 0 = never
    bool prefix_cache = true;                   ///< blocks of equal prefixes are computed once
};

/// Decides which sequences run, and how many of their tokens, in the next step.
///
/// Decodes come first, so that no prompt holds them up; what is left of the token budget goes to
/// prompts, chunk by chunk, and then to waiting requests. Among these the order is: higher priority,
/// then the client that was given least so far, then earlier arrival. A prompt whose beginning is in
/// the prefix cache starts behind it.
///
/// When blocks run out, some sequence gives its blocks back and is computed again later (preemption):
/// paused ones first, then those of lower priority, then later arrival. Its client sees a pause
/// and the same tokens. The first by priority and arrival is never preempted, so something always
/// comes to an end.
///
/// Plain host code: no device, no clock, no thread. Thread: engine.
class Scheduler {
public:
    Scheduler(const SchedulerLimits& limits, BlockPool& pool);

    /// Queues a request.
    /// @return prompt_too_long when it can never run, queue_full when max_waiting are waiting; the
    ///         request is then not taken
    [[nodiscard]] base::Result<void> submit(base::Request&& request);

    /// A paused sequence keeps its blocks while nobody else needs them, takes no part in steps and
    /// holds no place among those that run. No effect on a request that is not live.
    void pause(base::RequestId id);
    void resume(base::RequestId id);

    /// Takes a sequence out, running or not, and frees its blocks. Null when there is none. Not for
    /// a sequence of a step that will still be committed.
    std::unique_ptr<Sequence> remove(base::RequestId id);

    /// Fills `plan` with the next step; empty when nothing can run. Sequences of the step, in plan
    /// order, are scheduled() until commit().
    void plan(model::StepPlan& plan);
    [[nodiscard]] const std::vector<Sequence*>& scheduled() const { return scheduled_; }
    /// Rows of plan.logit_rows that belong to scheduled()[i]: [first, first + count). The last one
    /// is the row to sample from when the sequence is complete (wants_sample).
    struct Rows {
        std::int32_t first = 0, count = 0;
        bool wants_sample = false;
    };
    [[nodiscard]] const std::vector<Rows>& rows() const { return rows_; }

    /// The step was run: its tokens are in the cache. Appending sampled tokens and removing finished
    /// sequences is the caller's, afterwards.
    void commit();

    /// Tokens that one sequence may have, prompt and generated: the context, or what the cache holds.
    [[nodiscard]] std::int32_t max_sequence_tokens() const { return limits_.context_length; }
    [[nodiscard]] std::size_t num_running() const { return running_.size(); }
    [[nodiscard]] std::size_t num_waiting() const { return waiting_.size(); }
    [[nodiscard]] std::uint64_t num_preemptions() const { return num_preemptions_; }
    /// Tokens that preempted sequences had computed: work to be done again.
    [[nodiscard]] std::uint64_t num_wasted_tokens() const { return num_wasted_tokens_; }
    [[nodiscard]] std::size_t num_paused() const { return paused_.size(); }
    [[nodiscard]] bool is_idle() const { return running_.empty() && waiting_.empty() && paused_.empty(); }
    /// Prompt tokens looked up in the prefix cache, and found there.
    [[nodiscard]] std::uint64_t num_queried_tokens() const { return num_queried_tokens_; }
    [[nodiscard]] std::uint64_t num_found_tokens() const { return num_found_tokens_; }
    /// The KV layout has changed, or what is in the cache is not to be trusted: every sequence is
    /// computed again from its tokens. Not between plan() and commit().
    void recompute_all();
    /// Every live sequence: running, waiting, paused; valid until the next call of live().
    [[nodiscard]] const std::vector<Sequence*>& live();

private:
    using List = std::vector<std::unique_ptr<Sequence>>;

    [[nodiscard]] std::int32_t blocks_for(std::int32_t num_tokens) const;
    [[nodiscard]] std::int32_t missing_blocks(const Sequence& sequence) const;
    [[nodiscard]] bool reserve(Sequence& sequence, std::int32_t num_tokens);
    [[nodiscard]] bool reserve_or_preempt(Sequence& sequence, std::int32_t num_tokens);
    void release(Sequence& sequence);
    void evict(Sequence& sequence);
    [[nodiscard]] bool evict_idle(const Sequence* except = nullptr);
    void preempt_last();
    void find_prefix(Sequence& sequence);
    void publish_blocks(Sequence& sequence);
    [[nodiscard]] List::iterator next_waiting();
    void admit();
    [[nodiscard]] bool choose();
    void choose_prompts(std::int32_t budget, std::int32_t free_rows);
    void add_to_plan(model::StepPlan& plan, Sequence& sequence);
    [[nodiscard]] std::int32_t chunk_size(const Sequence& sequence, std::int32_t budget,
                                          std::int32_t free_rows) const;

    SchedulerLimits limits_;
    BlockPool& pool_;
    PrefixCache prefix_cache_;
    FairShare shares_;
    List running_, waiting_, paused_;  // each by priority, then arrival
    std::vector<Sequence*> scheduled_, prompts_, live_;
    std::vector<Rows> rows_;
    std::uint64_t arrivals_ = 0, steps_ = 0, num_preemptions_ = 0, num_wasted_tokens_ = 0;
    std::uint64_t num_queried_tokens_ = 0, num_found_tokens_ = 0;
};

}  // namespace engine
