#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/config/config.hpp"
#include "daemon/plugin/log_queue.hpp"
#include "daemon/server/options.hpp"

namespace app {

/// Sends the daemon's log, and its access log, where the configuration says. Nobody who logs waits for a
/// disk; see LogSink. Throws base::ConfigError naming the key when a file cannot be opened.
void set_up_log(const config::Log& log);

/// What set_up_log would throw, without opening anything for good.
void check_log(const config::Log& log);

// One event each, key=value, control characters escaped. Any thread.
void log_info(std::string_view line);
void log_warn(std::string_view line);
void log_error(std::string_view line);

/// One JSON object in the access log. Nothing without one.
void log_access(const server::AccessRecord& record);
/// What a client sent, cut after 64 KiB. For log.messages.
void log_message(std::string_view id, std::string_view text);
[[nodiscard]] bool has_access_log();

/// Where plugins' lines go.
[[nodiscard]] plugin::LogQueue::Sink plugin_log_sink();

/// The descriptor of the log where it is a file, for a line from a signal handler; else -1.
[[nodiscard]] int log_descriptor();

/// Opens the files anew, after somebody moved them away.
void reopen_logs();
/// Writes out what waits, for a second at most; before the process ends.
void flush_log();

struct DroppedLines {
    std::uint64_t log = 0, access = 0;
};
[[nodiscard]] DroppedLines dropped_lines();

}  // namespace app
