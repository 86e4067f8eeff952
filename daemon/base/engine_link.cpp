#include "daemon/base/engine_link.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <thread>

namespace base {

EngineLink::EngineLink(std::size_t max_submissions, std::size_t max_events)
    : submissions_{max_submissions}, controls_{max_submissions * 2}, events_{max_events} {}

bool EngineLink::submit(Request& request) {
    Submission item{std::move(request)};
    if (!submissions_.push(item)) {
        request = std::move(std::get<Request>(item));
        return false;
    }
    notify_engine();
    return true;
}

void EngineLink::cancel(RequestId id) { control(Cancel{id}); }

void EngineLink::pause(RequestId id, bool is_paused) { control(Pause{id, is_paused}); }

void EngineLink::control(Submission&& item) {
    unsent_controls_.push_back(std::move(item));
    send_controls();
}

void EngineLink::send_controls() {
    std::size_t sent = 0;
    while (sent < unsent_controls_.size() && controls_.push(unsent_controls_[sent])) ++sent;
    unsent_controls_.erase(unsent_controls_.begin(),
                           unsent_controls_.begin() + static_cast<std::ptrdiff_t>(sent));
    notify_engine();
}

void EngineLink::drain_events(std::vector<TokenEvent>& out) {
    // What is there now and no more: an engine that is faster than the io thread would otherwise
    // keep it here for ever. A wake-up follows everything that is published later.
    TokenEvent event;
    for (std::size_t n = events_.size(); n > 0 && events_.pop(event); --n)
        out.push_back(std::move(event));
    if (!unsent_controls_.empty()) send_controls();
}

bool EngineLink::next(Submission& out) {
    // Submissions first: no other word overtakes the request it is about.
    return submissions_.pop(out) || controls_.pop(out);
}

void EngineLink::wait(int max_wait_ms) {
    const std::uint32_t seen = signal_.load(std::memory_order_acquire);
    if (!submissions_.empty() || !controls_.empty() || stopped()) return;
    const timespec timeout{max_wait_ms / 1000, static_cast<long>(max_wait_ms % 1000) * 1'000'000L};
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&signal_), FUTEX_WAIT_PRIVATE, seen,
              &timeout, nullptr, 0);
}

void EngineLink::publish(TokenEvent&& event) {
    while (!events_.push(event)) {
        if (stopped()) return;
        wake_io();
        std::this_thread::yield();
    }
    published_ = true;
}

void EngineLink::wake_io() {
    if (!published_) return;
    published_ = false;
    if (wake_io_) wake_io_();
}

void EngineLink::stop() {
    stopped_.store(true, std::memory_order_release);
    notify_engine();
}

void EngineLink::notify_engine() {
    signal_.fetch_add(1, std::memory_order_release);
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&signal_), FUTEX_WAKE_PRIVATE, 1, nullptr,
              nullptr, 0);
}

}  // namespace base
