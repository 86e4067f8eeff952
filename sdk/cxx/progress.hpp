#pragma once

// Words for long jobs over bytes, the same in plugins and hosts.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sdk {

/// "51.2 of 402.0 GB, 2.05 GB/s, 171 s left".
[[nodiscard]] inline std::string progress_text(std::uint64_t done, std::uint64_t total,
                                               double seconds) {
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    char text[128];
    const int length = std::snprintf(text, sizeof text, "%.1f of %.1f GB, %.2f GB/s",
                                     static_cast<double>(done) / 1e9,
                                     static_cast<double>(total) / 1e9, rate / 1e9);
    if (rate > 0 && done < total && length > 0)
        std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length),
                      ", %.0f s left", static_cast<double>(total - done) / rate);
    return text;
}

/// Counts the bytes of one job and says when a line about them is due: after 1, 2, 4, 8, 16 seconds
/// and every 30 from then on, so that the log of an hour's load fits a screen or two. Thread: any.
class Progress {
public:
    explicit Progress(std::uint64_t total) : total_{total} {}

    /// Adds to what is done. The text to show, or "" when none is due.
    std::string advance(std::uint64_t bytes) {
        const std::uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        const double now = seconds();
        double due = next_.load(std::memory_order_relaxed);
        if (now < due || !next_.compare_exchange_strong(due, now < 30 ? 2 * now : now + 30))
            return {};
        return progress_text(done, total_, now);
    }

    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

private:
    const std::uint64_t total_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::atomic<std::uint64_t> done_{0};
    std::atomic<double> next_{1.0};
};

}  // namespace sdk
