#include "daemon/server/session/flow.hpp"

#include "daemon/metrics/feeds.hpp"
#include "daemon/server/dispatcher.hpp"

#include <algorithm>
#include <chrono>

namespace server {

Flow::~Flow() {
    if (is_paused_) pause(false);
}

void Flow::join(base::RequestId id) {
    requests_.push_back(id);
    if (is_paused_) dispatcher_.pause(id, true);
}

bool Flow::is_server_behind() const {
    return dispatcher_.is_behind();
}

void Flow::leave(base::RequestId id) { std::erase(requests_, id); }

void Flow::update(std::size_t num_bytes) {
    if (!is_paused_ && num_bytes > budget_bytes_ && !requests_.empty()) pause(true);
    if (is_paused_ && num_bytes <= budget_bytes_ / 2) pause(false);
}

void Flow::pause(bool is_paused) {
    const auto now = base::Clock::now();
    is_paused_ = is_paused;
    if (is_paused) {
        paused_since_ = now;
        metrics_.stream_stalls.add();
        metrics_.slow_clients_paused.add();
    } else {
        metrics_.stream_stall_nanoseconds.add(
            std::chrono::duration_cast<std::chrono::nanoseconds>(now - paused_since_).count());
    }
    for (const base::RequestId id : requests_) dispatcher_.pause(id, is_paused);
}

}  // namespace server
