#include "daemon/engine/scheduler.hpp"

#include <algorithm>

#include "daemon/base/check.hpp"

namespace engine {
namespace {

/// The one order of sequences: higher priority first, then earlier arrival.
bool comes_before(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
    if (a->request.priority != b->request.priority) return a->request.priority > b->request.priority;
    return a->arrival < b->arrival;
}

template <class List>
void insert_in_order(List& list, std::unique_ptr<Sequence> sequence) {
    const auto at = std::upper_bound(list.begin(), list.end(), sequence, comes_before);
    list.insert(at, std::move(sequence));
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool) : limits_{limits}, pool_{pool} {
    // A sequence must be able to run alone, or preemption would never end.
    limits_.context_length = static_cast<std::int32_t>(
        std::min<std::int64_t>(limits.context_length,
                               static_cast<std::int64_t>(pool.num_blocks()) * limits.block_size));
    CHECK(limits.max_logit_rows >= limits.max_num_seqs);
    CHECK(limits.max_num_batched_tokens >= limits.max_num_seqs);
    running_.reserve(static_cast<std::size_t>(limits.max_num_seqs));
    scheduled_.reserve(static_cast<std::size_t>(limits.max_num_seqs));
    rows_.reserve(static_cast<std::size_t>(limits.max_num_seqs));
}

std::int32_t Scheduler::blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + limits_.block_size - 1) / limits_.block_size;
}

base::Result<void> Scheduler::submit(base::Request&& request) {
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    const std::int64_t whole = prompt + (request.max_tokens > 0 ? 1 : 0);
    CHECK(prompt > 0);
    if (whole > limits_.context_length)
        return base::make_error_code(base::Errc::prompt_too_long);
    if (waiting_.size() >= static_cast<std::size_t>(limits_.max_waiting))
        return base::make_error_code(base::Errc::queue_full);

    auto sequence = std::make_unique<Sequence>();
    sequence->arrival = ++arrivals_;
    sequence->tokens = request.prompt;
    sequence->request = std::move(request);
    insert_in_order(waiting_, std::move(sequence));
    return {};
}

std::unique_ptr<Sequence> Scheduler::remove(base::RequestId id) {
    const auto matches = [id](const auto& s) { return s->request.id == id; };
    std::unique_ptr<Sequence> found;
    if (const auto it = std::find_if(running_.begin(), running_.end(), matches); it != running_.end()) {
        found = std::move(*it);
        running_.erase(it);
    } else if (const auto w = std::find_if(waiting_.begin(), waiting_.end(), matches); w != waiting_.end()) {
        found = std::move(*w);
        waiting_.erase(w);
    }
    if (found) release(*found);
    return found;
}

void Scheduler::release(Sequence& sequence) {
    for (const BlockId id : sequence.blocks) pool_.drop(id);
    sequence.blocks.clear();
    sequence.num_computed = 0;
    sequence.num_scheduled = 0;
}

bool Scheduler::reserve(Sequence& sequence, std::int32_t num_tokens) {
    const std::int32_t have = static_cast<std::int32_t>(sequence.blocks.size());
    const std::int32_t missing = blocks_for(sequence.num_computed + num_tokens) - have;
    if (missing <= 0) return true;
    const auto old = sequence.blocks.size();
    sequence.blocks.resize(old + static_cast<std::size_t>(missing));
    if (pool_.take(std::span{sequence.blocks}.subspan(old))) return true;
    sequence.blocks.resize(old);
    return false;
}

void Scheduler::preempt_last() {
    auto sequence = std::move(running_.back());
    running_.pop_back();
    CHECK(sequence->num_scheduled == 0);
    ++num_preemptions_;
    num_wasted_tokens_ += static_cast<std::uint64_t>(sequence->num_computed);
    release(*sequence);
    sequence->prompt_logprobs.clear();
    insert_in_order(waiting_, std::move(sequence));
}

/// False when the sequence itself had to give way. Those behind it are not scheduled yet.
bool Scheduler::reserve_or_preempt(Sequence& sequence, std::int32_t num_tokens) {
    while (!reserve(sequence, num_tokens)) {
        const bool is_itself = running_.back().get() == &sequence;
        preempt_last();
        if (is_itself) return false;
    }
    return true;
}

/// Blocks that a sequence lacks for all its tokens and one more.
std::int32_t Scheduler::missing_blocks(const Sequence& sequence) const {
    const std::int32_t tokens = std::min(sequence.num_tokens() + 1, limits_.context_length);
    return std::max(0, blocks_for(tokens) - static_cast<std::int32_t>(sequence.blocks.size()));
}

void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < static_cast<std::size_t>(limits_.max_num_seqs)) {
        Sequence& next = *waiting_.front();
        // Room for all that it has to compute, beside what those that run still need for theirs:
        // admitting one does not preempt another at once.
        std::int32_t needed = missing_blocks(next);
        for (const auto& s : running_) needed += missing_blocks(*s);
        if (pool_.num_free() < needed && !running_.empty()) break;
        // Once, so that a decode step allocates nothing.
        const auto whole = static_cast<std::int32_t>(std::min<std::int64_t>(
            limits_.context_length, std::int64_t{next.prompt_tokens()} + std::max(0, next.request.max_tokens)));
        next.tokens.reserve(static_cast<std::size_t>(whole));
        next.blocks.reserve(static_cast<std::size_t>(blocks_for(whole)));
        auto sequence = std::move(waiting_.front());
        waiting_.pop_front();
        insert_in_order(running_, std::move(sequence));
    }
}

std::int32_t Scheduler::chunk_size(const Sequence& sequence, std::int32_t budget,
                                   std::int32_t free_rows) const {
    std::int32_t chunk = std::min(sequence.num_pending(), budget);
    // A scored prompt needs a row of logits for each of its tokens.
    if (sequence.request.prompt_logprobs && sequence.num_generated() == 0)
        chunk = std::min(chunk, free_rows);
    return chunk;
}

void Scheduler::add_to_plan(model::StepPlan& plan, Sequence& s) {
    const std::int32_t first_row = plan.num_tokens();
    for (std::int32_t i = 0; i < s.num_scheduled; ++i) {
        const std::int32_t position = s.num_computed + i;
        const auto block = s.blocks[static_cast<std::size_t>(position / limits_.block_size)];
        plan.tokens.push_back(s.tokens[static_cast<std::size_t>(position)]);
        plan.positions.push_back(position);
        plan.slots.push_back(static_cast<std::int32_t>(block) * limits_.block_size +
                             position % limits_.block_size);
    }
    plan.cu_q.push_back(plan.num_tokens());
    plan.kv_len.push_back(s.num_computed + s.num_scheduled);

    Rows rows;
    rows.first = static_cast<std::int32_t>(plan.logit_rows.size());
    rows.wants_sample = s.num_computed + s.num_scheduled == s.num_tokens();
    if (s.request.prompt_logprobs && s.num_generated() == 0) {
        for (std::int32_t i = 0; i < s.num_scheduled; ++i) plan.logit_rows.push_back(first_row + i);
    } else if (rows.wants_sample) {
        plan.logit_rows.push_back(plan.num_tokens() - 1);
    }
    rows.count = static_cast<std::int32_t>(plan.logit_rows.size()) - rows.first;
    scheduled_.push_back(&s);
    rows_.push_back(rows);
}

/// Sets num_scheduled of the sequences of the next step. False when there is none.
bool Scheduler::choose() {
    std::int32_t budget = limits_.max_num_batched_tokens;
    std::int32_t free_rows = limits_.max_logit_rows;

    // By index: reserve_or_preempt() takes sequences off the end.
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Sequence& s = *running_[i];
        if (!s.is_decoding() || !reserve_or_preempt(s, 1)) continue;
        s.num_scheduled = 1;
        --budget;
        --free_rows;
    }
    admit();
    // Prompts, each as much as the budget allows.
    for (const auto& running : running_) {
        Sequence& s = *running;
        if (budget == 0 || free_rows == 0) break;
        if (s.num_scheduled > 0) continue;
        const std::int32_t chunk = chunk_size(s, budget, free_rows);
        if (!reserve(s, chunk)) continue;  // waits for blocks that others will free
        s.num_scheduled = chunk;
        budget -= chunk;
        free_rows -= s.request.prompt_logprobs && s.num_generated() == 0 ? chunk : 1;
    }
    return std::any_of(running_.begin(), running_.end(), [](const auto& s) { return s->num_scheduled > 0; });
}

void Scheduler::plan(model::StepPlan& plan) {
    CHECK(scheduled_.empty());
    plan.clear();
    plan.step = ++steps_;
    rows_.clear();
    // Prompts alone hold every block and none can go on: the last one gives way.
    while (!choose() && running_.size() > 1) preempt_last();

    for (const bool decoding : {true, false}) {
        for (auto& s : running_)
            if (s->num_scheduled > 0 && s->is_decoding() == decoding) add_to_plan(plan, *s);
        if (decoding) plan.num_decode_seqs = plan.num_seqs();
    }
    for (const Sequence* s : scheduled_)
        plan.max_blocks = std::max(plan.max_blocks, static_cast<std::int32_t>(s->blocks.size()));
    for (const Sequence* s : scheduled_) {
        for (const BlockId id : s->blocks) plan.block_table.push_back(static_cast<std::int32_t>(id));
        plan.block_table.resize(plan.block_table.size() +
                                    static_cast<std::size_t>(plan.max_blocks) - s->blocks.size(), -1);
    }
}

void Scheduler::commit() {
    for (Sequence* s : scheduled_) {
        s->num_computed += s->num_scheduled;
        s->num_scheduled = 0;
    }
    scheduled_.clear();
}

const std::vector<Sequence*>& Scheduler::live() {
    live_.clear();
    for (const auto& s : running_) live_.push_back(s.get());
    for (const auto& s : waiting_) live_.push_back(s.get());
    return live_;
}

}  // namespace engine
