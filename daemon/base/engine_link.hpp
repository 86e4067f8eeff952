#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "daemon/base/request.hpp"
#include "daemon/base/spsc_queue.hpp"

namespace base {

/// The client left, or its text is complete: the engine frees what the request holds.
struct Cancel {
    RequestId id{};
};

/// The client does not read what it was sent: nothing more is computed for it until it does.
struct Pause {
    RequestId id{};
    bool is_paused = true;  ///< false = it goes on
};

using Submission = std::variant<std::monostate, Request, Cancel, Pause>;

/// The two queues between the io thread and the engine thread, and their wake-ups. The only thing
/// that both sides share.
///
/// Io end: submit, cancel, pause, drain_events. Engine end: next, wait, publish, wake_io. `stop` may be
/// called from any thread.
class EngineLink {
public:
    /// @param max_submissions  room for requests not yet seen by the engine; what is said about them
    ///                         has room of its own, so that a full queue can still be emptied
    explicit EngineLink(std::size_t max_submissions, std::size_t max_events = 1U << 16U);

    // ---- io end -------------------------------------------------------------------------------

    /// False when the queue is full; `request` is then unchanged.
    [[nodiscard]] bool submit(Request& request);
    /// Never lost: waits in the io end until the queue has room.
    void cancel(RequestId id);
    /// Never lost, and in order.
    void pause(RequestId id, bool is_paused);
    /// Appends everything that has arrived to `out`. Clears nothing.
    void drain_events(std::vector<TokenEvent>& out);
    /// Called by the engine thread after it published; must be cheap and thread-safe (it posts to
    /// an io_context). Set before the engine starts.
    void on_events(std::function<void()> wake) { wake_io_ = std::move(wake); }

    // ---- engine end ---------------------------------------------------------------------------

    /// The next submission, or false when there is none.
    bool next(Submission& out);
    /// Sleeps until something is submitted, stop() or `max_wait_ms` passed.
    void wait(int max_wait_ms);
    /// Delivers one event; waits for the io thread while the ring is full.
    void publish(TokenEvent&& event);
    /// One wake-up of the io thread for everything published since the last.
    void wake_io();

    // ---- both ---------------------------------------------------------------------------------

    void stop();
    [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_acquire); }

private:
    void notify_engine();
    void control(Submission&& item);
    void send_controls();

    SpscQueue<Submission> submissions_;
    SpscQueue<Submission> controls_;      // cancels and pauses
    SpscQueue<TokenEvent> events_;
    std::vector<Submission> unsent_controls_;  // io thread only
    std::function<void()> wake_io_;
    bool published_ = false;                 // engine thread only
    std::atomic<bool> stopped_{false};
    std::atomic<std::uint32_t> signal_{0};   // bumped by every submission; the engine waits on it
};

}  // namespace base
