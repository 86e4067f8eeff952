#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace plugin {

/// One line of a plugin, as the daemon's log gets it.
struct LogLine {
    int level = 1;  ///< an assay_level
    std::string plugin;
    std::string text;  ///< valid for one line: control characters are escaped
};

/// Carries plugins' log lines from any thread to the daemon's log without ever blocking the writer.
///
/// A fixed number of slots; a line that finds none is dropped and counted, and the count is logged
/// when there is room again. Lines are cut to kMaxText bytes. One thread calls the sink, in order.
class LogQueue {
public:
    static constexpr std::size_t kMaxText = 1000;  ///< bytes
    static constexpr std::size_t kMaxId = 64;

    using Sink = std::function<void(const LogLine&)>;

    /// @param num_slots  rounded up to a power of two
    explicit LogQueue(Sink sink, std::size_t num_slots = 256);
    /// Hands everything written so far to the sink.
    ~LogQueue();
    LogQueue(const LogQueue&) = delete;
    LogQueue& operator=(const LogQueue&) = delete;

    /// Copies; never blocks, never allocates. False when the line was dropped. [any]
    bool write(int level, std::string_view plugin, std::string_view text) noexcept;

    [[nodiscard]] std::uint64_t num_dropped() const noexcept { return dropped_.load(); }

private:
    struct Slot;
    void work();
    bool take(LogLine& line);

    Sink sink_;
    std::size_t mask_;
    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<std::uint64_t> head_{0};  // next slot to write
    alignas(64) std::uint64_t tail_ = 0;              // next slot to read; the thread's
    std::atomic<std::uint64_t> dropped_{0};
    std::atomic<std::uint32_t> signal_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace plugin
