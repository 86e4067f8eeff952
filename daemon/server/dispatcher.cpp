#include "daemon/server/dispatcher.hpp"

#include "daemon/metrics/feeds.hpp"

#include <chrono>

namespace server {
namespace {

constexpr std::chrono::milliseconds kMaxTime{5};  // of one turn; sockets wait meanwhile
constexpr std::size_t kClockEvery = 16;           // events between two looks at the clock

// Under pressure, a turn is long enough for several tokens of each stream to meet in one event.
constexpr std::chrono::milliseconds kMaxTimeBehind{20};
constexpr std::chrono::milliseconds kBehindAge{50};  // of a token that only now gets its turn, and
constexpr std::size_t kBehindEvents = 512;           // so many that wait with it

}  // namespace

base::Result<base::RequestId> Dispatcher::submit(base::Request& request,
                                                 RequestListener& listener) {
    const base::RequestId id{next_id_};
    request.id = id;
    KeyLedger::Account* const account = ledger_ == nullptr ? nullptr : ledger_->find(request.client);
    if (account != nullptr)
        if (const auto refused = ledger_->refusal(*account, base::Clock::now()))
            return base::make_error_code(*refused);
    const std::size_t prompt_tokens = request.prompt.size();
    if (!link_.submit(request)) return base::make_error_code(base::Errc::queue_full);
    if (account != nullptr) ledger_->begin(*account, prompt_tokens);
    live_.emplace(next_id_++, Entry{.listener = &listener, .account = account});
    return id;
}

void Dispatcher::cancel(base::RequestId id, bool by_client) {
    const auto found = live_.find(static_cast<std::uint64_t>(id));
    if (found == live_.end() || found->second.listener == nullptr) return;
    Entry& entry = found->second;
    entry.listener = nullptr;
    entry.cancelled_at = base::Clock::now();
    entry.by_client = by_client;
    link_.cancel(id);
}

void Dispatcher::pause(base::RequestId id, bool is_paused) {
    if (live_.contains(static_cast<std::uint64_t>(id))) link_.pause(id, is_paused);
}

bool Dispatcher::deliver() {
    // A listener may bring deliver() about again only through the io_context, never from inside.
    const bool is_rest = num_delivered_ < batch_.size();
    if (!is_rest) {
        batch_.clear();  // keeps the capacity
        num_delivered_ = 0;
        link_.drain_events(batch_);
    }
    const auto begin = base::Clock::now();
    look_behind(begin);
    while (num_delivered_ < batch_.size()) {
        deliver(batch_[num_delivered_++]);
        if (num_delivered_ % kClockEvery == 0 &&
            base::Clock::now() - begin > (is_behind_ ? kMaxTimeBehind : kMaxTime))
            break;
    }
    // The rest of an older batch says nothing about what has arrived since: that call's wake-up was
    // used up here, so there has to be another.
    return is_rest || num_delivered_ < batch_.size();
}

void Dispatcher::look_behind(base::Clock::time_point now) {
    const std::size_t num_left = batch_.size() - num_delivered_;
    is_behind_ = false;
    if (num_left < kBehindEvents) return;
    const base::TokenEvent& oldest = batch_[num_delivered_];
    is_behind_ = oldest.at != base::Clock::time_point{} && now - oldest.at > kBehindAge;
}

void Dispatcher::deliver(base::TokenEvent& event) {
    const auto found = live_.find(static_cast<std::uint64_t>(event.id));
    if (found == live_.end()) return;
    const Entry entry = found->second;
    const bool is_last = event.finish != base::FinishReason::none;
    if (is_last) live_.erase(found);
    if (entry.account != nullptr) {
        if (event.kind == base::TokenEvent::Kind::token) {
            ++entry.account->generated_tokens;
            entry.account->tokens -= 1;
        }
        if (is_last) --entry.account->in_flight;
    }
    if (entry.listener != nullptr) {
        entry.listener->on_event(event);
        return;
    }
    if (event.kind == base::TokenEvent::Kind::token) {
        (entry.by_client ? metrics_.wasted_tokens_disconnect : metrics_.wasted_tokens_stop_overrun)
            .add();
    }
    if (is_last && entry.by_client) {
        metrics_.cancel_seconds.observe(
            std::chrono::duration<double>(base::Clock::now() - entry.cancelled_at).count());
    }
}

}  // namespace server
