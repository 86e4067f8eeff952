#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace app {

/// Lines on their way to a file, written by a thread of its own, so that nobody who logs ever waits for a
/// disk or a pipe.
///
/// What waits is bounded: when it is full the oldest lines are dropped, and a line says how many. A file
/// that cannot be written (a full disk) costs lines and nothing else; standard error is told once.
class LogSink {
public:
    static constexpr std::size_t kMaxWaitingBytes = std::size_t{4} << 20;

    /// @param path   appended to; empty: standard error
    /// @param lost   makes the line that says how many were dropped; without it none is written
    /// Throws base::ConfigError with the reason when the file cannot be opened.
    explicit LogSink(std::filesystem::path path, std::function<std::string(std::uint64_t)> lost = {},
                     std::size_t max_waiting_bytes = kMaxWaitingBytes);
    /// Writes what waits, for a second at most.
    ~LogSink();
    LogSink(const LogSink&) = delete;
    LogSink& operator=(const LogSink&) = delete;

    /// Takes a line without its newline. Never waits for the file. Any thread.
    void write(std::string line) noexcept;
    /// Opens the file anew before the next line: somebody has moved it away. Any thread.
    void reopen();
    /// Waits until everything taken so far is written, or for `at_most`. Any thread.
    void flush(std::chrono::milliseconds at_most);
    /// Of the file; -1 for standard error. Any thread.
    [[nodiscard]] int descriptor() const { return path_.empty() ? -1 : fd_.load(); }
    /// Lines dropped, or lost because the file could not be written. Any thread.
    [[nodiscard]] std::uint64_t num_dropped() const;

private:
    void work();
    void open_again();
    void write_out(const std::deque<std::string>& lines, std::uint64_t num_dropped);

    const std::filesystem::path path_;
    const std::function<std::string(std::uint64_t)> lost_;
    const std::size_t max_waiting_bytes_;
    std::atomic<int> fd_{-1};
    bool has_complained_ = false;  // the thread's

    mutable std::mutex mutex_;
    std::condition_variable wake_, written_;
    std::deque<std::string> waiting_;
    std::size_t waiting_bytes_ = 0;
    std::uint64_t num_taken_ = 0, num_done_ = 0;     // lines
    std::uint64_t num_dropped_ = 0, num_reported_ = 0;
    bool wants_reopen_ = false, is_stopping_ = false;
    std::thread thread_;
};

}  // namespace app
