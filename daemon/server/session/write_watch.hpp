#pragma once

#include "daemon/base/request.hpp"

#include <chrono>
#include <cstdint>

namespace server {

/// Tells a slow peer from one that takes nothing: a write that lasts while the peer's kernel
/// acknowledges no further byte has stalled. Thread: io.
class WriteWatch {
public:
    void begin(base::Clock::time_point now);
    void end() { is_writing_ = false; }
    /// @return  whether nothing has moved for `timeout`
    [[nodiscard]] bool has_stalled(int fd, base::Clock::time_point now,
                                   std::chrono::milliseconds timeout);

private:
    bool is_writing_ = false;
    base::Clock::time_point moved_at_{};
    std::uint64_t acked_ = 0;
};

}  // namespace server
