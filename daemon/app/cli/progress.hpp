#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "daemon/app/stack.hpp"
#include "daemon/plugin/log_queue.hpp"

namespace app::cli {

/// One line on the terminal that is written over as work goes on. Silent where standard error is no
/// terminal, so that pipes and logs hold no progress. Thread: any.
class ProgressLine {
public:
    explicit ProgressLine(std::string what = {});
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// Bytes, rate and time left, a few times a second.
    void update(std::uint64_t done, std::uint64_t total);
    /// Any text in its place.
    void show(const std::string& text);
    /// Leaves a clean line for what is printed next.
    void clear();

private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    std::mutex mutex_;
    Clock::time_point begin_ = Clock::now(), next_ = begin_;
    bool is_terminal_, is_dirty_ = false;
};

/// What a command shows while a model comes up: its stages and the plugins' news as a progress line,
/// the plugins' warnings as lines of their own. Outlives the Stack.
class StartDisplay {
public:
    StartDisplay();
    void attach(StackOptions& options);
    /// The model is up: what follows is the command's own output.
    void done() { line_.clear(); }

private:
    ProgressLine line_;
    plugin::LogQueue log_;
};

}  // namespace app::cli
