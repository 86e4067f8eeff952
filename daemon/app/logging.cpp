#include "daemon/app/logging.hpp"

#include <time.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "abi/plugin.h"
#include "daemon/app/log_sink.hpp"
#include "daemon/base/error.hpp"
#include "daemon/text/utf8.hpp"

namespace app {
namespace {

using config::LogLevel;

constexpr std::chrono::milliseconds kFlushTime{1000};
constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;
constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error"};
constexpr const char* kColours[] = {"", "\x1b[36m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};

/// Where lines go once set_up_log was called.
struct Logs {
    std::unique_ptr<LogSink> log, access;
    LogLevel level = LogLevel::info;
    bool is_json = false, is_coloured = false;
};
Logs& logs() {
    static Logs& all = *new Logs;  // never destroyed: a writer that hangs on a pipe hinders no exit
    return all;
}

/// "2026-03-14T09:26:53.589+0100"
std::string now_text() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    tm parts{};
    ::localtime_r(&now.tv_sec, &parts);
    char date[32], zone[8], text[64];
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    std::strftime(zone, sizeof zone, "%z", &parts);
    std::snprintf(text, sizeof text, "%s.%03ld%s", date, now.tv_nsec / 1'000'000, zone);
    return text;
}

std::string json_text(std::string_view text) {
    const std::string repaired = text::is_valid_utf8(text) ? std::string{} : text::repair_utf8(text);
    return boost::json::serialize(boost::json::value(boost::json::string(repaired.empty() ? text : repaired)));
}

/// One line whatever it holds: parts of it come from clients and files.
std::string escaped(std::string_view line) {
    std::string out;
    out.reserve(line.size());
    for (const char c : line) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            out += c;
            continue;
        }
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02x", byte);
        out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : hex;
    }
    return out;
}

std::string formatted(LogLevel level, std::string_view line) {
    const auto index = static_cast<std::size_t>(level);
    if (logs().is_json)
        return R"({"time":")" + now_text() + R"(","level":")" + kLevels[index] + R"(","message":)" + json_text(line) + '}';
    const std::string name = logs().is_coloured ? std::string{kColours[index]} + kLevels[index] + "\x1b[m" : kLevels[index];
    return now_text() + ' ' + name + ' ' + escaped(line);
}

void write(LogLevel level, std::string_view line) {
    if (logs().log && level >= logs().level) logs().log->write(formatted(level, line));
}

std::unique_ptr<LogSink> open_sink(const char* key, const std::filesystem::path& file,
                                   std::function<std::string(std::uint64_t)> lost) {
    try {
        return std::make_unique<LogSink>(file, std::move(lost));
    } catch (const base::ConfigError& e) {
        throw base::ConfigError{std::string{key} + ": " + e.what()};
    }
}

}  // namespace

void set_up_log(const config::Log& log) {
    logs().level = log.level;
    logs().is_json = log.format == config::LogFormat::json;
    logs().is_coloured = log.file.empty() && ::isatty(STDERR_FILENO) == 1;
    logs().log = open_sink("log.file", log.file, [](std::uint64_t n) {
        return formatted(LogLevel::warn, "event=log_dropped lines=" + std::to_string(n) +
                                             " detail=\"the log could not be written as fast as lines came\"");
    });
    if (log.access_file.empty()) return;
    logs().access = open_sink("log.access_file", log.access_file, [](std::uint64_t n) {
        return R"({"time":")" + now_text() + R"(","lines_dropped":)" + std::to_string(n) + '}';
    });
}

void check_log(const config::Log& log) {
    const auto check = [](const char* key, const std::filesystem::path& file) {
        if (file.empty()) return;
        std::error_code error;
        const bool exists = std::filesystem::exists(file, error);
        const std::filesystem::path folder = file.parent_path();
        const std::filesystem::path& target = exists || folder.empty() ? file : folder;
        const bool is_folder = exists && std::filesystem::is_directory(file, error);
        if (is_folder || ::access(target.c_str(), W_OK) != 0)
            throw base::ConfigError{std::string{key} + ": " + file.string() + " cannot be written: " +
                                    std::strerror(is_folder ? EISDIR : errno)};
    };
    check("log.file", log.file);
    check("log.access_file", log.access_file);
}

void log_info(std::string_view line) { write(LogLevel::info, line); }
void log_warn(std::string_view line) { write(LogLevel::warn, line); }
void log_error(std::string_view line) { write(LogLevel::error, line); }

bool has_access_log() { return logs().access != nullptr; }

void log_access(const server::AccessRecord& r) {
    if (!has_access_log()) return;
    std::string line = R"({"time":")" + now_text() + R"(","id":)" + json_text(r.id) + R"(,"peer":)" + json_text(r.peer);
    if (!r.key_label.empty()) line += R"(,"key":)" + json_text(r.key_label);
    line += R"(,"method":)" + json_text(r.method) + R"(,"path":)" + json_text(r.path) + R"(,"status":)" +
            std::to_string(r.status);
    if (r.close_code != 0)
        line += R"(,"close_code":)" + std::to_string(r.close_code) + R"(,"responses":)" + std::to_string(r.responses);
    line += R"(,"bytes_in":)" + std::to_string(r.bytes_in) + R"(,"bytes_out":)" + std::to_string(r.bytes_out) +
            R"(,"duration_ms":)" + std::to_string(r.duration.count()) + '}';
    logs().access->write(std::move(line));
}

void log_message(std::string_view id, std::string_view text) {
    if (!has_access_log()) return;
    std::string line = R"({"time":")" + now_text() + R"(","id":)" + json_text(id) + R"(,"message":)" +
                       json_text(text.substr(0, kMaxMessageBytes));
    if (text.size() > kMaxMessageBytes) line += R"(,"message_bytes":)" + std::to_string(text.size());
    logs().access->write(line + '}');
}

int log_descriptor() { return logs().log ? logs().log->descriptor() : -1; }

void reopen_logs() {
    if (logs().log) logs().log->reopen();
    if (logs().access) logs().access->reopen();
}

void flush_log() {
    if (logs().log) logs().log->flush(kFlushTime);
    if (logs().access) logs().access->flush(kFlushTime);
}

DroppedLines dropped_lines() {
    return {logs().log ? logs().log->num_dropped() : 0, logs().access ? logs().access->num_dropped() : 0};
}

plugin::LogQueue::Sink plugin_log_sink() {
    return [](const plugin::LogLine& line) {
        const LogLevel level = line.level == ASSAY_ERROR  ? LogLevel::error
                               : line.level == ASSAY_WARN ? LogLevel::warn
                               : line.level == ASSAY_INFO ? LogLevel::info
                                                          : LogLevel::debug;
        write(level, "plugin=" + line.plugin + " " + line.text);
    };
}

}  // namespace app
