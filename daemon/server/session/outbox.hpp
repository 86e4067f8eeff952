#pragma once

#include "daemon/server/protocol/event_text.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace server {

class Flow;

/// What waits for one client's socket, bounded in bytes.
///
/// Over the high mark, and while the server is behind (Dispatcher::is_behind), further text of a delta
/// that still waits is put into it, so that a slow reader costs the bytes of its text and not one event
/// a token, and a server under pressure one event for several tokens. The flow is told how much waits and
/// stops what is generated.
///
/// Thread: io.
class Outbox {
public:
    /// Names one waiting event; never reused within an outbox. 0 names none.
    using Serial = std::uint64_t;

    /// @param flow  told of every change; null: nobody is
    explicit Outbox(std::size_t high_bytes, Flow* flow = nullptr)
        : high_bytes_{high_bytes}, flow_{flow} {}

    Serial push(EventText event);
    /// Puts text into a waiting delta. False when there is time and room for an event of its own,
    /// when the delta is gone, or when nothing may be put into it.
    /// @param text  not escaped
    bool merge(Serial serial, std::string_view text);
    /// The oldest event; not empty before.
    [[nodiscard]] std::string pop();

    [[nodiscard]] bool empty() const { return events_.empty(); }
    [[nodiscard]] std::size_t num_events() const { return events_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] bool is_over_high() const { return bytes_ > high_bytes_; }

private:
    void changed();

    std::deque<EventText> events_;
    Serial first_ = 1;  // of the oldest
    std::size_t bytes_ = 0;
    std::size_t high_bytes_;
    Flow* flow_;
};

}  // namespace server
