#include "daemon/app/log_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "daemon/base/error.hpp"

namespace app {
namespace {

constexpr std::chrono::milliseconds kLastWords{1000};

int open_file(const std::filesystem::path& path) {
    return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

/// 0, or the errno.
int write_all(int fd, const char* data, std::size_t size) {
    while (size > 0) {
        const ssize_t n = ::write(fd, data, size);
        if (n > 0) {
            data += n;
            size -= static_cast<std::size_t>(n);
        } else if (n < 0 && errno == EAGAIN) {  // a standard error that somebody else made non-blocking
            pollfd ready{fd, POLLOUT, 0};
            ::poll(&ready, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            return n == 0 ? EIO : errno;
        }
    }
    return 0;
}

}  // namespace

LogSink::LogSink(std::filesystem::path path, std::function<std::string(std::uint64_t)> lost,
                 std::size_t max_waiting_bytes)
    : path_{std::move(path)}, lost_{std::move(lost)}, max_waiting_bytes_{max_waiting_bytes} {
    fd_ = path_.empty() ? STDERR_FILENO : open_file(path_);
    if (fd_ < 0) throw base::ConfigError{path_.string() + " cannot be written: " + std::strerror(errno)};
    thread_ = std::thread{[this] { work(); }};
    ::pthread_setname_np(thread_.native_handle(), "log");
}

LogSink::~LogSink() {
    flush(kLastWords);
    {
        const std::lock_guard lock{mutex_};
        is_stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (!path_.empty() && fd_ >= 0) ::close(fd_);
}

void LogSink::write(std::string line) noexcept {
    try {
        line += '\n';
        const std::lock_guard lock{mutex_};
        waiting_bytes_ += line.size();
        waiting_.push_back(std::move(line));
        ++num_taken_;
        while (waiting_bytes_ > max_waiting_bytes_ && waiting_.size() > 1) {
            waiting_bytes_ -= waiting_.front().size();
            waiting_.pop_front();
            ++num_dropped_;
            ++num_done_;
        }
    } catch (const std::bad_alloc&) {
        return;  // no memory for a line of the log is no reason to end
    }
    wake_.notify_one();
}

void LogSink::reopen() {
    const std::lock_guard lock{mutex_};
    wants_reopen_ = true;
    wake_.notify_one();
}

void LogSink::flush(std::chrono::milliseconds at_most) {
    std::unique_lock lock{mutex_};
    written_.wait_for(lock, at_most, [this, until = num_taken_] { return num_done_ >= until; });
}

std::uint64_t LogSink::num_dropped() const {
    const std::lock_guard lock{mutex_};
    return num_dropped_;
}

void LogSink::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        wake_.wait(lock, [this] { return !waiting_.empty() || wants_reopen_ || is_stopping_; });
        if (is_stopping_ && waiting_.empty()) return;
        std::deque<std::string> lines;
        lines.swap(waiting_);
        waiting_bytes_ = 0;
        const bool reopens = std::exchange(wants_reopen_, false);
        const std::uint64_t dropped = num_dropped_ - std::exchange(num_reported_, num_dropped_);
        lock.unlock();
        if (reopens) open_again();
        write_out(lines, dropped);
        lock.lock();
        num_done_ += lines.size();
        written_.notify_all();
    }
}

void LogSink::open_again() {
    if (path_.empty()) return;
    const int fd = open_file(path_);
    if (fd < 0) {  // the old file is better than none
        const std::string text = "assayd: " + path_.string() + " cannot be opened anew: " + std::strerror(errno) + "\n";
        (void)write_all(STDERR_FILENO, text.data(), text.size());
        return;
    }
    ::close(fd_);
    fd_ = fd;
    has_complained_ = false;
}

void LogSink::write_out(const std::deque<std::string>& lines, std::uint64_t num_dropped) {
    std::string text;
    if (num_dropped > 0 && lost_) text = lost_(num_dropped) + '\n';
    for (const std::string& line : lines) text += line;
    const int error = write_all(fd_, text.data(), text.size());
    if (error == 0) {
        has_complained_ = false;
        return;
    }
    {
        const std::lock_guard lock{mutex_};
        num_dropped_ += lines.size();
    }
    if (path_.empty() || std::exchange(has_complained_, true)) return;
    const std::string complaint =
        "assayd: " + path_.string() + " cannot be written: " + std::strerror(error) + "; its lines are lost\n";
    (void)write_all(STDERR_FILENO, complaint.data(), complaint.size());
}

}  // namespace app
