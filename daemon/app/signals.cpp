#include "daemon/app/signals.hpp"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <utility>

namespace app {
namespace {

constexpr long kTickSeconds = 1;

sigset_t signal_set() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) sigaddset(&set, signal);
    return set;
}

const char* name_of(int signal) {
    return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGQUIT";
}

}  // namespace

void Signals::block() {
    const sigset_t set = signal_set();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Signals::Signals(Handlers handlers) : handlers_{std::move(handlers)}, thread_{[this] { run(); }} {
    ::pthread_setname_np(thread_.native_handle(), "signals");
}

Signals::~Signals() {
    // Wakes the thread; to it alone, since a signal of the process would end what nobody sent.
    is_stopping_ = true;
    ::pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
}

void Signals::run() {
    const sigset_t set = signal_set();
    auto next_tick = std::chrono::steady_clock::now() + std::chrono::seconds{kTickSeconds};
    for (bool is_leaving = false;;) {
        const timespec wait{kTickSeconds, 0};
        const int signal = ::sigtimedwait(&set, nullptr, &wait);
        if (is_stopping_) return;
        if (const auto now = std::chrono::steady_clock::now(); now >= next_tick) {
            next_tick = now + std::chrono::seconds{kTickSeconds};
            handlers_.tick();
        }
        if (signal < 0) continue;  // time to tick, or interrupted
        if (signal == SIGHUP)
            handlers_.hang_up();
        else if (!std::exchange(is_leaving, true))
            handlers_.leave(name_of(signal));
        else
            handlers_.leave_now(name_of(signal));
    }
}

}  // namespace app
