#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "daemon/base/error.hpp"
#include "daemon/engine/block_pool.hpp"
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
    std::chrono::milliseconds queue_timeout{60'000};  ///< a request not begun by then is refused
};

/// Decides which sequences run, and how many of their tokens, in the next step.
///
/// Decodes come first, so that no prompt holds them up; what is left of the token budget goes to
/// prompts, chunk by chunk: those begun, then waiting ones. Everywhere the order is one: higher
/// priority first, then earlier arrival. When blocks run out, the last running sequence of that
/// order gives its blocks back and is computed again later (preemption); its client sees a pause and
/// the same tokens. The first of the order is never preempted, so something always comes to an end.
///
/// Plain host code: no device, no clock, no thread. Thread: engine.
class Scheduler {
public:
    Scheduler(const SchedulerLimits& limits, BlockPool& pool);

    /// Queues a request.
    /// @return prompt_too_long when it can never run, queue_full when max_waiting are waiting; the
    ///         request is then not taken
    [[nodiscard]] base::Result<void> submit(base::Request&& request);

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
    [[nodiscard]] bool is_idle() const { return running_.empty() && waiting_.empty(); }
    /// Every live sequence, running first; valid until the next call of live().
    [[nodiscard]] const std::vector<Sequence*>& live();

private:
    [[nodiscard]] std::int32_t blocks_for(std::int32_t num_tokens) const;
    [[nodiscard]] std::int32_t missing_blocks(const Sequence& sequence) const;
    [[nodiscard]] bool reserve(Sequence& sequence, std::int32_t num_tokens);
    [[nodiscard]] bool reserve_or_preempt(Sequence& sequence, std::int32_t num_tokens);
    void release(Sequence& sequence);
    void preempt_last();
    void admit();
    [[nodiscard]] bool choose();
    void add_to_plan(model::StepPlan& plan, Sequence& sequence);
    [[nodiscard]] std::int32_t chunk_size(const Sequence& sequence, std::int32_t budget,
                                          std::int32_t free_rows) const;

    SchedulerLimits limits_;
    BlockPool& pool_;
    std::vector<std::unique_ptr<Sequence>> running_;  // by priority, then arrival
    std::deque<std::unique_ptr<Sequence>> waiting_;   // the same
    std::vector<Sequence*> scheduled_, live_;
    std::vector<Rows> rows_;
    std::uint64_t arrivals_ = 0, steps_ = 0, num_preemptions_ = 0, num_wasted_tokens_ = 0;
};

}  // namespace engine
