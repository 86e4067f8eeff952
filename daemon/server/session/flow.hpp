#pragma once

#include "daemon/base/request.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace metrics {
struct Server;
}

namespace server {

class Dispatcher;

/// Back-pressure of one connection: while more waits for its socket than its budget, nothing more is
/// generated for it. The client's own streams wait, nobody else's.
///
/// Told by the outbox how much waits; knows the requests that write into it. Thread: io.
class Flow {
public:
    /// @param budget_bytes  above it the requests pause; at half of it they go on
    Flow(Dispatcher& dispatcher, metrics::Server& metrics, std::size_t budget_bytes)
        : dispatcher_{dispatcher}, metrics_{metrics}, budget_bytes_{budget_bytes} {}
    ~Flow();
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;

    /// A request that writes into the outbox until leave().
    void join(base::RequestId id);
    void leave(base::RequestId id);
    /// @param num_bytes  what waits for the socket now
    void update(std::size_t num_bytes);

    [[nodiscard]] bool is_paused() const { return is_paused_; }
    /// See Dispatcher::is_behind.
    [[nodiscard]] bool is_server_behind() const;
    /// Whether it has been paused for `timeout` without a break.
    [[nodiscard]] bool has_stalled(base::Clock::time_point now, std::chrono::milliseconds timeout) const {
        return is_paused_ && now - paused_since_ >= timeout;
    }

private:
    void pause(bool is_paused);

    Dispatcher& dispatcher_;
    metrics::Server& metrics_;
    std::size_t budget_bytes_;
    std::vector<base::RequestId> requests_;
    bool is_paused_ = false;
    base::Clock::time_point paused_since_{};
};

}  // namespace server
