#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace app {

/// Waits for the signals of an operator on a thread of its own, and calls what belongs to each there.
///
/// SIGTERM, SIGINT and SIGQUIT: `leave` the first time, `leave_now` from the second on. SIGHUP, which also
/// comes when a terminal closes: `hang_up`. Between signals `tick` is called about once a second.
class Signals {
public:
    struct Handlers {
        std::function<void(const char* signal)> leave, leave_now;
        std::function<void()> hang_up, tick;
    };

    /// The signals are blocked in every thread: block() was called before any was started.
    explicit Signals(Handlers handlers);
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    /// Blocks the signals in this thread and in those that it starts later.
    static void block();

private:
    void run();

    Handlers handlers_;
    std::atomic<bool> is_stopping_{false};
    std::thread thread_;
};

}  // namespace app
