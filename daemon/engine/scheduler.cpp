#include "daemon/engine/scheduler.hpp"

#include <algorithm>

#include "daemon/base/check.hpp"

namespace engine {
namespace {

/// Higher priority first, then earlier arrival: the order of every list, and the reverse of the order
/// of giving way.
bool comes_before(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
    if (a->request.priority != b->request.priority) return a->request.priority > b->request.priority;
    return a->arrival < b->arrival;
}

/// Who comes first of those that this step has not chosen yet. A sequence that was interrupted and
/// lacks only its last token is a decode, whose client waits in the middle of a text.
bool is_served_before(const Sequence& a, const Sequence& b) {
    if (a.is_decoding() != b.is_decoding()) return a.is_decoding();
    if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
    if (a.share->service != b.share->service) return a.share->service < b.share->service;
    return a.arrival < b.arrival;
}

template <class List>
void insert_in_order(List& list, std::unique_ptr<Sequence> sequence) {
    const auto at = std::upper_bound(list.begin(), list.end(), sequence, comes_before);
    list.insert(at, std::move(sequence));
}

/// Null when it is not in the list.
template <class List>
std::unique_ptr<Sequence> take_from(List& list, base::RequestId id) {
    const auto at = std::find_if(list.begin(), list.end(), [id](const auto& s) { return s->request.id == id; });
    if (at == list.end()) return nullptr;
    auto sequence = std::move(*at);
    list.erase(at);
    return sequence;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool)
    : limits_{limits}, pool_{pool}, prefix_cache_{pool, limits.block_size} {
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
    if (sequence->request.rules) sequence->constraint = sequence->request.rules->start();
    sequence->share = &shares_.join(sequence->request.client);
    insert_in_order(waiting_, std::move(sequence));
    return {};
}

std::unique_ptr<Sequence> Scheduler::remove(base::RequestId id) {
    std::unique_ptr<Sequence> found;
    for (List* list : {&running_, &waiting_, &paused_})
        if (!found) found = take_from(*list, id);
    if (!found) return nullptr;
    release(*found);
    shares_.leave(found->request.client);
    found->share = nullptr;
    return found;
}

void Scheduler::pause(base::RequestId id) {
    for (List* list : {&running_, &waiting_}) {
        if (auto sequence = take_from(*list, id)) {
            sequence->is_paused = true;
            insert_in_order(paused_, std::move(sequence));
        }
    }
}

void Scheduler::resume(base::RequestId id) {
    if (auto sequence = take_from(paused_, id)) {
        sequence->is_paused = false;
        insert_in_order(waiting_, std::move(sequence));
    }
}

void Scheduler::release(Sequence& sequence) {
    // The end of a prefix is of use only with its beginning: it becomes idle, and is reused, first.
    for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) pool_.drop(*block);
    sequence.blocks.clear();
    sequence.num_computed = 0;
    sequence.num_scheduled = 0;
    sequence.node = PrefixCache::Node::root;
    sequence.num_known_blocks = 0;
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

/// Gives back the blocks of a sequence that will need them again.
void Scheduler::evict(Sequence& sequence) {
    CHECK(sequence.num_scheduled == 0);
    ++num_preemptions_;
    num_wasted_tokens_ += static_cast<std::uint64_t>(sequence.num_computed);
    release(sequence);
    sequence.prompt_logprobs.clear();
}

/// Frees the blocks of one sequence that has some and does not run: of a paused one, else of one that
/// was and waits to go on. False when there is none but `except`.
bool Scheduler::evict_idle(const Sequence* except) {
    for (List* list : {&paused_, &waiting_}) {
        for (auto at = list->rbegin(); at != list->rend(); ++at) {
            if (at->get() == except || (*at)->blocks.empty()) continue;
            evict(**at);
            return true;
        }
    }
    return false;
}

void Scheduler::preempt_last() {
    auto sequence = std::move(running_.back());
    running_.pop_back();
    evict(*sequence);
    insert_in_order(waiting_, std::move(sequence));
}

void Scheduler::recompute_all() {
    CHECK(scheduled_.empty());
    for (List* list : {&running_, &waiting_, &paused_})
        for (const auto& sequence : *list)
            if (!sequence->blocks.empty()) evict(*sequence);
    prefix_cache_.clear();
}

/// False when the sequence itself had to give way. Those behind it are not scheduled yet.
bool Scheduler::reserve_or_preempt(Sequence& sequence, std::int32_t num_tokens) {
    while (!reserve(sequence, num_tokens)) {
        if (evict_idle()) continue;
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

/// Takes the blocks of the longest known beginning. At least one token is left to compute: its logits
/// are what the next one is drawn from.
void Scheduler::find_prefix(Sequence& sequence) {
    if (!limits_.prefix_cache || !sequence.blocks.empty()) return;
    // Every position of a scored prompt needs its logits.
    if (sequence.request.prompt_logprobs && sequence.num_generated() == 0) return;
    const auto known = std::span{sequence.tokens}.first(sequence.tokens.size() - 1);
    sequence.node = prefix_cache_.find(known, sequence.blocks);
    sequence.num_known_blocks = static_cast<std::int32_t>(sequence.blocks.size());
    sequence.num_computed = sequence.num_known_blocks * limits_.block_size;
}

/// Lets others find the blocks that the last step has filled.
void Scheduler::publish_blocks(Sequence& sequence) {
    const std::int32_t full = sequence.num_computed / limits_.block_size;
    for (std::int32_t& i = sequence.num_known_blocks; i < full; ++i) {
        const auto tokens = std::span<const std::int32_t>{sequence.tokens}.subspan(
            static_cast<std::size_t>(i) * static_cast<std::size_t>(limits_.block_size),
            static_cast<std::size_t>(limits_.block_size));
        sequence.node = prefix_cache_.insert(sequence.node, tokens, sequence.blocks[static_cast<std::size_t>(i)]);
    }
}

/// Which waiting sequence comes next: one that was interrupted before one that never ran.
Scheduler::List::iterator Scheduler::next_waiting() {
    return std::min_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
        if (a->request.priority != b->request.priority) return a->request.priority > b->request.priority;
        if (a->is_admitted != b->is_admitted) return a->is_admitted;
        return a->is_admitted ? a->arrival < b->arrival : is_served_before(*a, *b);
    });
}

void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < static_cast<std::size_t>(limits_.max_num_seqs)) {
        const auto at = next_waiting();
        Sequence& next = **at;
        // Room for all that it has to compute, beside what those that run still need for theirs:
        // admitting one does not preempt another at once.
        std::int32_t needed = 0;
        for (const auto& s : running_) needed += missing_blocks(*s);
        const bool has_blocks = !next.blocks.empty();
        find_prefix(next);
        needed += missing_blocks(next);
        while (pool_.num_free() < needed && evict_idle(&next)) {}
        if (pool_.num_free() < needed && !running_.empty()) {
            if (!has_blocks) release(next);
            break;
        }
        if (!next.is_admitted) {
            next.num_cached = next.num_computed;
            num_queried_tokens_ += next.request.prompt_logprobs ? 0 : next.request.prompt.size();
            num_found_tokens_ += static_cast<std::uint64_t>(next.num_cached);
        }
        // Once, so that a decode step allocates nothing.
        const auto whole = static_cast<std::int32_t>(std::min<std::int64_t>(
            limits_.context_length, std::int64_t{next.prompt_tokens()} + std::max(0, next.request.max_tokens)));
        next.tokens.reserve(static_cast<std::size_t>(whole));
        next.blocks.reserve(static_cast<std::size_t>(blocks_for(whole)));
        auto sequence = std::move(*at);
        waiting_.erase(at);
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
    choose_prompts(budget, free_rows);
    return std::any_of(running_.begin(), running_.end(), [](const auto& s) { return s->num_scheduled > 0; });
}

/// Prompts, each as much as the budget allows.
void Scheduler::choose_prompts(std::int32_t budget, std::int32_t free_rows) {
    prompts_.clear();
    for (const auto& s : running_)
        if (s->num_scheduled == 0) prompts_.push_back(s.get());
    std::sort(prompts_.begin(), prompts_.end(),
              [](const Sequence* a, const Sequence* b) { return is_served_before(*a, *b); });
    for (Sequence* s : prompts_) {
        if (budget == 0 || free_rows == 0) break;
        const std::int32_t chunk = chunk_size(*s, budget, free_rows);
        if (!reserve(*s, chunk)) continue;  // waits for blocks that others will free
        s->num_scheduled = chunk;
        budget -= chunk;
        free_rows -= s->request.prompt_logprobs && s->num_generated() == 0 ? chunk : 1;
    }
}

void Scheduler::plan(model::StepPlan& plan) {
    CHECK(scheduled_.empty());
    plan.clear();
    plan.step = ++steps_;
    rows_.clear();
    while (!choose() && !running_.empty()) {
        if (evict_idle()) continue;
        // Prompts alone hold every block and none can go on: the last one gives way.
        if (running_.size() == 1) break;
        preempt_last();
    }

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
        if (s->is_decoding())
            FairShare::charge_decode(*s->share);
        else
            FairShare::charge_prompt(*s->share, s->num_scheduled);
        s->num_computed += s->num_scheduled;
        s->num_scheduled = 0;
        if (limits_.prefix_cache) publish_blocks(*s);
    }
    scheduled_.clear();
}

const std::vector<Sequence*>& Scheduler::live() {
    live_.clear();
    for (const List* list : {&running_, &waiting_, &paused_})
        for (const auto& s : *list) live_.push_back(s.get());
    return live_;
}

}  // namespace engine
