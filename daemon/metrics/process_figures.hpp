#pragma once

#include <optional>

namespace metrics {

/// What the kernel says about this process. Source: proc(5), /proc/self/stat and /proc/self/fd.
struct ProcessFigures {
    double resident_bytes = 0;
    double virtual_bytes = 0;
    double cpu_seconds = 0;    ///< user and system time of all threads
    double start_seconds = 0;  ///< since 1970
    double num_threads = 0;
    double num_open_fds = 0;
};

/// Nothing where /proc is not mounted.
[[nodiscard]] std::optional<ProcessFigures> read_process_figures();

}  // namespace metrics
