#include "daemon/app/logging.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <memory>

#include "abi/plugin.h"
#include "daemon/base/error.hpp"

namespace app {
namespace {

bool json_lines = false;

spdlog::level::level_enum to_spdlog(config::LogLevel level) {
    switch (level) {
        case config::LogLevel::trace: return spdlog::level::trace;
        case config::LogLevel::debug: return spdlog::level::debug;
        case config::LogLevel::info: return spdlog::level::info;
        case config::LogLevel::warn: return spdlog::level::warn;
        case config::LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

void write(spdlog::level::level_enum level, std::string_view line) {
    if (json_lines)
        spdlog::log(level, "{}", boost::json::serialize(boost::json::value(boost::json::string(line))));
    else
        spdlog::log(level, "{}", line);
}

}  // namespace

void set_up_log(const config::Log& log) {
    std::shared_ptr<spdlog::logger> logger;
    if (log.file.empty()) {
        logger = std::make_shared<spdlog::logger>("assayd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    } else {
        try {
            logger = std::make_shared<spdlog::logger>(
                "assayd", std::make_shared<spdlog::sinks::basic_file_sink_mt>(log.file.string()));
        } catch (const spdlog::spdlog_ex& e) {
            throw base::ConfigError{"log.file: " + log.file.string() + " cannot be written: " + e.what()};
        }
    }
    json_lines = log.format == config::LogFormat::json;
    logger->set_pattern(json_lines ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%v})"
                                   : "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    logger->set_level(to_spdlog(log.level));
    logger->flush_on(spdlog::level::info);
    logger->set_error_handler([](const std::string&) {});  // a full disk: the line is lost, nothing else
    spdlog::set_default_logger(std::move(logger));
}

void log_info(std::string_view line) { write(spdlog::level::info, line); }
void log_warn(std::string_view line) { write(spdlog::level::warn, line); }
void log_error(std::string_view line) { write(spdlog::level::err, line); }
void flush_log() { spdlog::default_logger()->flush(); }

plugin::LogQueue::Sink plugin_log_sink() {
    return [](const plugin::LogLine& line) {
        const auto level = line.level == ASSAY_ERROR  ? spdlog::level::err
                           : line.level == ASSAY_WARN ? spdlog::level::warn
                           : line.level == ASSAY_INFO ? spdlog::level::info
                                                      : spdlog::level::debug;
        write(level, "plugin=" + line.plugin + " " + line.text);
    };
}

}  // namespace app
