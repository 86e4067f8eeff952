#pragma once

#include <string_view>

#include "daemon/config/config.hpp"
#include "daemon/plugin/log_queue.hpp"

namespace app {

/// Sends the daemon's log where the configuration says. Lines that cannot be written are dropped:
/// a full disk never stops serving. Throws base::ConfigError when the file cannot be opened.
void set_up_log(const config::Log& log);

// One event each, key=value; see docs/operating.md.
void log_info(std::string_view line);
void log_warn(std::string_view line);
void log_error(std::string_view line);

/// Where plugins' lines go.
[[nodiscard]] plugin::LogQueue::Sink plugin_log_sink();

/// Writes out what is buffered; before the process ends.
void flush_log();

}  // namespace app
