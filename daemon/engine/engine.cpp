#include "daemon/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace engine {

using base::Errc;
using base::FinishReason;
using base::TokenEvent;

namespace {

constexpr int kIdleWaitMs = 100;  // how late an expired request that waits may be noticed

double seconds(base::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Engine::Engine(const SchedulerLimits& limits, model::Runner& runner, Sampler& sampler,
               std::int32_t num_blocks, base::EngineLink& link, metrics::Engine& metrics)
    : link_{link},
      metrics_{metrics},
      runner_{runner},
      sampler_{sampler},
      pool_{num_blocks},
      scheduler_{limits, pool_},
      queue_timeout_{limits.queue_timeout} {
    plan_.reserve(limits.max_num_batched_tokens, limits.max_num_seqs,
                  (scheduler_.max_sequence_tokens() + limits.block_size - 1) / limits.block_size,
                  limits.max_logit_rows);
    metrics_.kv_block_size_tokens.set(limits.block_size);
    update_metrics();
}

/// Everything that a request goes through between tokens is on this page.
std::string Engine::run(const std::function<void(const std::string&)>& on_failure) {
    for (;;) {
        receive();
        if (link_.stopped()) {
            fail_all({});
            return {};
        }
        expire();
        scheduler_.plan(plan_);
        if (plan_.num_tokens() == 0) {
            update_metrics();
            link_.wake_io();
            link_.wait(kIdleWaitMs);
            continue;
        }
        if (!step()) {
            const std::string why = runner_.failure().empty() ? sampler_.failure() : runner_.failure();
            metrics_.device_errors.add();
            if (on_failure) on_failure(why);
            fail_all(why);
            return why;
        }
        deliver();
        update_metrics();
        link_.wake_io();  // one wake-up a step
    }
}

void Engine::receive() {
    base::Submission item;
    controls_.clear();
    while (link_.next(item)) {
        if (auto* request = std::get_if<base::Request>(&item))
            accept(std::move(*request));
        else
            controls_.push_back(std::move(item));
    }
    // Last: a request that was submitted before a word about it may have been drained after that.
    for (const base::Submission& control : controls_) obey(control);
    update_num_live();
}

void Engine::obey(const base::Submission& control) {
    if (const auto* cancel = std::get_if<base::Cancel>(&control)) {
        if (const auto sequence = scheduler_.remove(cancel->id))
            finish(cancel->id, FinishReason::cancelled, Errc::cancelled);
    } else if (const auto* pause = std::get_if<base::Pause>(&control)) {
        if (pause->is_paused)
            scheduler_.pause(pause->id);
        else
            scheduler_.resume(pause->id);
    }
}

void Engine::accept(base::Request&& request) {
    const base::RequestId id = request.id;
    if (const auto taken = scheduler_.submit(std::move(request)); !taken)
        return finish(id, FinishReason::error, static_cast<Errc>(taken.error().value()));
    TokenEvent event;
    event.id = id;
    event.kind = TokenEvent::Kind::accepted;
    event.at = base::Clock::now();
    link_.publish(std::move(event));
}

void Engine::expire() {
    now_ = base::Clock::now();
    if (now_ < next_expiry_check_) return;
    next_expiry_check_ = now_ + std::chrono::milliseconds{kIdleWaitMs};
    expire_if(Errc::deadline, [this](const Sequence& s) { return s.request.deadline <= now_; });
    expire_if(Errc::queue_timeout, [this](const Sequence& s) {
        return queue_timeout_.count() > 0 && !s.is_admitted && s.request.received + queue_timeout_ <= now_;
    });
    update_num_live();
}

template <class Condition>
void Engine::expire_if(Errc error, Condition condition) {
    finished_.clear();
    for (const Sequence* s : scheduler_.live())
        if (condition(*s)) finished_.push_back(s->request.id);
    for (const base::RequestId id : finished_) {
        scheduler_.remove(id);
        finish(id, FinishReason::error, error);
    }
}

bool Engine::step() {
    const auto begin = base::Clock::now();
    step_sequences_ = scheduler_.scheduled();
    step_rows_ = scheduler_.rows();
    for (Sequence* s : step_sequences_) {
        if (s->is_admitted) continue;
        s->is_admitted = true;
        metrics_.queue_seconds.observe(seconds(begin - s->request.received));
        TokenEvent event;
        event.id = s->request.id;
        event.kind = TokenEvent::Kind::admitted;
        event.cached_tokens = s->num_cached;
        event.at = begin;
        metrics_.prompt_tokens_prefix_hit.add(s->num_cached);
        link_.publish(std::move(event));
    }
    if (!runner_.run(plan_) ||
        !sampler_.run(runner_.logits(), step_sequences_, step_rows_, sampled_))
        return false;
    now_ = base::Clock::now();
    const bool has_prefill = plan_.num_decode_seqs < plan_.num_seqs();
    (has_prefill ? metrics_.step_prefill_seconds : metrics_.step_decode_seconds).observe(seconds(now_ - begin));
    metrics_.batch_tokens.observe(plan_.num_tokens());
    metrics_.batch_sequences.observe(plan_.num_seqs());
    metrics_.prompt_tokens_computed.add(plan_.num_tokens() - plan_.num_decode_seqs);
    return true;
}

void Engine::deliver() {
    scheduler_.commit();
    finished_.clear();
    for (std::size_t i = 0; i < step_sequences_.size(); ++i) deliver(*step_sequences_[i], sampled_[i]);
    for (const base::RequestId id : finished_) scheduler_.remove(id);
    update_num_live();
}

void Engine::deliver(Sequence& s, Sampled& sampled) {
    if (s.request.prompt_logprobs && s.num_generated() == 0) {
        if (s.prompt_logprobs.empty())  // nothing precedes the first token
            s.prompt_logprobs.push_back({std::numeric_limits<float>::quiet_NaN(), {}});
        for (auto& entry : sampled.prompt_logprobs) s.prompt_logprobs.push_back(std::move(entry));
        if (s.num_pending() == 0) {
            TokenEvent event;
            event.id = s.request.id;
            event.kind = TokenEvent::Kind::prompt_scored;
            event.at = now_;
            event.logprobs = std::move(s.prompt_logprobs);
            s.prompt_logprobs.clear();
            link_.publish(std::move(event));
        }
    }
    if (s.num_pending() > 0) return;  // a chunk of a prompt
    if (s.request.max_tokens == 0) {
        finish(s.request.id, FinishReason::length);
        finished_.push_back(s.request.id);
        return;
    }
    if (sampled.is_broken) {
        finish(s.request.id, FinishReason::error, Errc::device_lost,
               "no finite logit at position " + std::to_string(s.num_tokens()));
        finished_.push_back(s.request.id);
        return;
    }
    s.tokens.push_back(sampled.token);
    if (s.constraint && !s.constraint->accept(sampled.token)) {
        finish(s.request.id, FinishReason::error, Errc::device_lost,
               "token " + std::to_string(sampled.token) + " was drawn, which the mask rules out");
        finished_.push_back(s.request.id);
        return;
    }
    metrics_.generation_tokens.add();
    TokenEvent event;
    event.id = s.request.id;
    event.kind = TokenEvent::Kind::token;
    event.token = sampled.token;
    event.at = now_;
    event.finish = finish_reason(s);
    event.logprobs = std::move(sampled.logprobs);
    if (event.finish != FinishReason::none) finished_.push_back(s.request.id);
    link_.publish(std::move(event));
}

FinishReason Engine::finish_reason(const Sequence& s) const {
    if (s.constraint && s.constraint->is_ended()) return FinishReason::stop;
    const auto& stop = s.request.stop_tokens;
    if (s.num_generated() >= s.request.min_tokens && std::binary_search(stop.begin(), stop.end(), s.tokens.back()))
        return FinishReason::stop;
    if (s.num_generated() >= s.request.max_tokens || s.num_tokens() >= scheduler_.max_sequence_tokens())
        return FinishReason::length;
    return FinishReason::none;
}

void Engine::finish(base::RequestId id, FinishReason reason, Errc error, std::string detail) {
    TokenEvent event;
    event.id = id;
    event.kind = TokenEvent::Kind::finished;
    event.finish = reason;
    event.error = error;
    event.at = base::Clock::now();
    event.detail = std::move(detail);
    link_.publish(std::move(event));
}

/// Nothing stays unanswered: neither what is live nor what nobody has looked at yet.
void Engine::fail_all(const std::string& why) {
    const Errc error = why.empty() ? Errc::draining : Errc::device_lost;
    finished_.clear();
    for (const Sequence* s : scheduler_.live()) finished_.push_back(s->request.id);
    base::Submission item;
    while (link_.next(item))
        if (const auto* request = std::get_if<base::Request>(&item)) finished_.push_back(request->id);
    for (const base::RequestId id : finished_) {
        scheduler_.remove(id);
        finish(id, FinishReason::error, error, why);
    }
    update_num_live();
    update_metrics();
    link_.wake_io();
}

void Engine::refuse_until_stopped(const std::string& why) {
    while (!link_.stopped()) {
        fail_all(why);
        link_.wait(kIdleWaitMs);
    }
}

void Engine::update_num_live() {
    num_live_.store(scheduler_.num_running() + scheduler_.num_waiting() + scheduler_.num_paused(),
                    std::memory_order_relaxed);
}

void Engine::update_metrics() {
    metrics_.requests_running.set(static_cast<double>(scheduler_.num_running()));
    metrics_.requests_waiting.set(static_cast<double>(scheduler_.num_waiting()));
    const std::int32_t total = pool_.num_blocks(), available = pool_.num_free(), idle = pool_.num_idle();
    metrics_.kv_blocks_free.set(available - idle);
    metrics_.kv_blocks_cached.set(idle);
    metrics_.kv_blocks_used.set(total - available);
    metrics_.kv_usage_ratio.set(static_cast<double>(total - available) / total);
    const auto count = [](metrics::Counter& counter, std::uint64_t now, std::uint64_t& seen) {
        counter.add(static_cast<std::int64_t>(now - seen));
        seen = now;
    };
    count(metrics_.preemptions, scheduler_.num_preemptions(), preemptions_seen_);
    count(metrics_.wasted_tokens_preempt, scheduler_.num_wasted_tokens(), wasted_seen_);
    count(metrics_.prefix_cache_queries_tokens, scheduler_.num_queried_tokens(), queried_seen_);
    count(metrics_.prefix_cache_hits_tokens, scheduler_.num_found_tokens(), found_seen_);
}

}  // namespace engine
