#include "tests/system/null_engine/engine.hpp"

#include "tests/system/null_engine/codec.hpp"

#include <algorithm>
#include <pthread.h>
#include <utility>
#include <variant>

namespace null_engine {

Engine::Engine(base::EngineLink& link, const Script& script, std::chrono::nanoseconds period)
    : link_{link}, script_{script}, period_{period}, thread_{[this] { run(); }} {}

Engine::~Engine() {
    link_.stop();
    thread_.join();
}

void Engine::run() {
    ::pthread_setname_np(::pthread_self(), "engine");  // whoever measures leaves it out
    auto next_step = base::Clock::now();
    while (!link_.stopped()) {
        base::Submission item;
        while (link_.next(item)) take(item);
        link_.wake_io();
        if (num_live_ == num_paused_) {  // nothing moves
            link_.wait(50);
            next_step = base::Clock::now();
            continue;
        }
        const auto now = base::Clock::now();
        if (now < next_step) {
            // What arrives meanwhile waits for the step, as behind a real one.
            std::this_thread::sleep_until(next_step);
            continue;
        }
        step();
        link_.wake_io();
        next_step = std::max(next_step + period_, base::Clock::now());
    }
}

void Engine::take(base::Submission& item) {
    if (const auto* request = std::get_if<base::Request>(&item)) return begin(*request);
    if (const auto* cancel = std::get_if<base::Cancel>(&item)) {
        const auto found = position_.find(static_cast<std::uint64_t>(cancel->id));
        if (found == position_.end()) return;
        publish(cancel->id, base::TokenEvent::Kind::finished, base::FinishReason::cancelled);
        remove(found->second);
    } else if (const auto* pause = std::get_if<base::Pause>(&item)) {
        const auto found = position_.find(static_cast<std::uint64_t>(pause->id));
        if (found == position_.end()) return;
        Live& live = live_[found->second];
        if (live.is_paused == pause->is_paused) return;
        live.is_paused = pause->is_paused;
        if (live.is_paused)
            ++num_paused_;
        else
            --num_paused_;
    }
}

void Engine::begin(const base::Request& request) {
    publish(request.id, base::TokenEvent::Kind::accepted, base::FinishReason::none);
    publish(request.id, base::TokenEvent::Kind::admitted, base::FinishReason::none);
    if (request.max_tokens == 0)
        return publish(request.id, base::TokenEvent::Kind::finished, base::FinishReason::length);
    position_.emplace(static_cast<std::uint64_t>(request.id), live_.size());
    live_.push_back({.id = request.id,
                     .max_tokens = request.max_tokens,
                     .reply = script_.reply_to(request.prompt)});
    num_live_ = live_.size();
}

void Engine::step() {
    const auto now =
        base::Clock::now();  // of the whole step: what the client's last byte counts from
    for (std::size_t i = 0; i < live_.size();) {
        if (advance(live_[i], now))
            remove(i);
        else
            ++i;
    }
}

bool Engine::advance(Live& live, base::Clock::time_point now) {
    if (live.is_paused) return false;
    base::TokenEvent event;
    event.id = live.id;
    event.at = now;
    const auto position = static_cast<std::size_t>(live.generated++);
    if (live.reply == nullptr)
        event.token = stamp_token(now);
    else
        event.token = position < live.reply->size() ? (*live.reply)[position] : Codec::kEog;
    if (event.token == Codec::kEog)
        event.finish = base::FinishReason::stop;
    else if (live.generated == live.max_tokens)
        event.finish = base::FinishReason::length;
    const bool is_over = event.finish != base::FinishReason::none;
    link_.publish(std::move(event));
    num_tokens_.fetch_add(1, std::memory_order_relaxed);
    return is_over;
}

void Engine::publish(base::RequestId id, base::TokenEvent::Kind kind, base::FinishReason finish) {
    base::TokenEvent event;
    event.id = id;
    event.kind = kind;
    event.finish = finish;
    event.at = base::Clock::now();
    link_.publish(std::move(event));
}

void Engine::remove(std::size_t at) {
    if (live_[at].is_paused) --num_paused_;
    position_.erase(static_cast<std::uint64_t>(live_[at].id));
    if (at + 1 != live_.size()) {
        live_[at] = live_.back();
        position_[static_cast<std::uint64_t>(live_[at].id)] = at;
    }
    live_.pop_back();
    num_live_ = live_.size();
}

}  // namespace null_engine
