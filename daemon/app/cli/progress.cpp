#include "daemon/app/cli/progress.hpp"

#include <unistd.h>

#include <cstdio>

namespace app::cli {

std::string progress_text(std::uint64_t done, std::uint64_t total, double seconds) {
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    char text[128];
    int length = std::snprintf(text, sizeof text, "%.1f of %.1f GB, %.2f GB/s", static_cast<double>(done) / 1e9,
                               static_cast<double>(total) / 1e9, rate / 1e9);
    if (rate > 0 && done < total && length > 0)
        std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), ", %.0f s left",
                      static_cast<double>(total - done) / rate);
    return text;
}

ProgressLine::ProgressLine(std::string what) : what_{std::move(what)}, is_terminal_{::isatty(STDERR_FILENO) != 0} {}

ProgressLine::~ProgressLine() {
    if (is_dirty_) std::fprintf(stderr, "\r\x1b[K");
}

void ProgressLine::update(std::uint64_t done, std::uint64_t total) {
    const auto now = Clock::now();
    if (!is_terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds{200};
    show(progress_text(done, total, std::chrono::duration<double>(now - begin_).count()));
}

void ProgressLine::show(const std::string& text) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\x1b[K%s%s%s", what_.c_str(), what_.empty() ? "" : ": ", text.c_str());
    std::fflush(stderr);
    is_dirty_ = true;
}

}  // namespace app::cli
