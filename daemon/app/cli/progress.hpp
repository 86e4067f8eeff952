#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace app::cli {

/// One line on the terminal that is written over as work goes on: bytes, rate and time left. Silent
/// where standard error is no terminal, so that logs and pipes hold no progress.
class ProgressLine {
public:
    explicit ProgressLine(std::string what);
    ~ProgressLine();  ///< leaves a clean line
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void update(std::uint64_t done, std::uint64_t total);
    /// Any text in its place.
    void show(const std::string& text);

private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    Clock::time_point begin_ = Clock::now(), next_ = begin_;
    bool is_terminal_, is_dirty_ = false;
};

/// "51.2 of 402.0 GB, 2.05 GB/s, 171 s left".
[[nodiscard]] std::string progress_text(std::uint64_t done, std::uint64_t total, double seconds);

}  // namespace app::cli
