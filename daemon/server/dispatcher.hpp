#pragma once

#include "daemon/base/engine_link.hpp"
#include "daemon/base/request.hpp"
#include "daemon/server/keys.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace metrics {
struct Server;
}

namespace server {

/// Receives what the engine says about one request.
class RequestListener {
public:
    virtual ~RequestListener() = default;
    /// May destroy the listener, start and cancel requests.
    virtual void on_event(base::TokenEvent& event) = 0;
};

/// The io end of the EngineLink: hands requests over and brings each event to whom it belongs.
///
/// Thread: io.
class Dispatcher {
public:
    /// @param ledger  null: nobody has limits
    Dispatcher(base::EngineLink& link, metrics::Server& metrics, KeyLedger* ledger = nullptr)
        : link_{link}, metrics_{metrics}, ledger_{ledger} {}

    /// Hands a request over; gives it its id.
    /// @param listener  until its last event or cancel()
    /// @return          Errc::queue_full, key_in_flight or key_tokens
    [[nodiscard]] base::Result<base::RequestId> submit(base::Request& request,
                                                       RequestListener& listener);

    /// Forgets the listener and has the engine free what the request holds.
    /// @param by_client  the client left (tokens still coming are wasted on nobody), as opposed to
    ///                   a stop string that was found
    void cancel(base::RequestId id, bool by_client);

    /// Nothing more is generated for the request, or it goes on. No effect on one that has ended.
    void pause(base::RequestId id, bool is_paused);

    /// Delivers what has arrived, for a few milliseconds, so that sockets get their turn too.
    /// @return  whether there is more: call again soon
    [[nodiscard]] bool deliver();

    /// Whether more arrives than the sockets are given: many tokens wait, and for long. What is
    /// delivered meanwhile may share an event with what still waits for its socket.
    [[nodiscard]] bool is_behind() const { return is_behind_; }

    /// Requests of which the engine has not yet said its last word, cancelled ones included.
    [[nodiscard]] std::size_t num_live() const { return live_.size(); }
    /// Those of them that somebody still waits for.
    [[nodiscard]] std::size_t num_awaited() const {
        return static_cast<std::size_t>(std::count_if(
            live_.begin(), live_.end(), [](const auto& item) { return item.second.listener != nullptr; }));
    }

private:
    struct Entry {
        RequestListener* listener = nullptr;  // null once cancelled
        base::Clock::time_point cancelled_at{};
        bool by_client = false;
        KeyLedger::Account* account = nullptr;  // of whoever asked
    };

    void deliver(base::TokenEvent& event);
    void look_behind(base::Clock::time_point now);

    base::EngineLink& link_;
    metrics::Server& metrics_;
    KeyLedger* ledger_;
    std::unordered_map<std::uint64_t, Entry> live_;
    std::vector<base::TokenEvent> batch_;
    std::size_t num_delivered_ = 0;  // of batch_
    bool is_behind_ = false;
    std::uint64_t next_id_ = 1;
};

}  // namespace server
