#include "daemon/server/session/write_watch.hpp"

#include <cstddef>
#include <linux/tcp.h>  // tcp_info with tcpi_bytes_acked, which the C library's header lacks
#include <netinet/in.h>
#include <sys/socket.h>

namespace server {
namespace {

/// Bytes that the peer has acknowledged since the connection began. Source: tcp(7), TCP_INFO.
std::uint64_t bytes_acked(int fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
    return info.tcpi_bytes_acked;
}

}  // namespace

void WriteWatch::begin(base::Clock::time_point now) {
    is_writing_ = true;
    moved_at_ = now;
}

bool WriteWatch::has_stalled(int fd, base::Clock::time_point now,
                             std::chrono::milliseconds timeout) {
    if (!is_writing_) return false;
    const std::uint64_t acked = bytes_acked(fd);
    if (acked != acked_) {
        acked_ = acked;
        moved_at_ = now;
    }
    return now - moved_at_ >= timeout;
}

}  // namespace server
