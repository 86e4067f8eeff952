#include "daemon/app/cli/progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "cxx/progress.hpp"

namespace app::cli {

ProgressLine::ProgressLine(std::string what) : what_{std::move(what)}, is_terminal_{::isatty(STDERR_FILENO) != 0} {}

void ProgressLine::update(std::uint64_t done, std::uint64_t total) {
    const auto now = Clock::now();
    if (!is_terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds{200};
    show(sdk::progress_text(done, total, std::chrono::duration<double>(now - begin_).count()));
}

void ProgressLine::show(const std::string& text) {
    if (!is_terminal_) return;
    const std::lock_guard lock{mutex_};
    std::fprintf(stderr, "\r\x1b[K%s%s%s", what_.c_str(), what_.empty() ? "" : ": ", text.c_str());
    std::fflush(stderr);
    is_dirty_ = true;
}

void ProgressLine::clear() {
    const std::lock_guard lock{mutex_};
    if (is_dirty_) std::fprintf(stderr, "\r\x1b[K");
    is_dirty_ = false;
}

StartDisplay::StartDisplay()
    : log_{[this](const plugin::LogLine& line) {
          if (line.level < ASSAY_WARN) return line_.show(line.text);
          line_.clear();
          std::fprintf(stderr, "assayctl: plugin %s: %s\n", line.plugin.c_str(), line.text.c_str());
      }} {}

void StartDisplay::attach(StackOptions& options) {
    options.on_stage = [this](const std::string& line) { line_.show(line); };
    options.services.log = &log_;
}

}  // namespace app::cli
