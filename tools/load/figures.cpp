#include "figures.hpp"

#include <cinttypes>
#include <cstdio>

namespace load {
namespace {

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

std::string member(const char* name, double value) {
    return std::string{"\""} + name + "\": " + number(value);
}

std::string member(const char* name, std::uint64_t value) {
    return std::string{"\""} + name + "\": " + std::to_string(value);
}

std::string member(const char* name, const Histogram& times) {
    return std::string{"\""} + name + "\": {" + member("count", times.count()) + ", " +
           member("mean", times.mean_ms()) + ", " + member("p50", times.percentile_ms(0.5)) + ", " +
           member("p90", times.percentile_ms(0.9)) + ", " +
           member("p95", times.percentile_ms(0.95)) + ", " +
           member("p99", times.percentile_ms(0.99)) + ", " +
           member("p999", times.percentile_ms(0.999)) + ", " + member("max", times.max_ms()) + "}";
}

}  // namespace

std::string to_json(const Figures& f, const std::string& settings) {
    const auto rate = [&](std::uint64_t count) {
        return f.seconds > 0 ? static_cast<double>(count) / f.seconds : 0;
    };
    std::string failures;
    for (const auto& [code, count] : f.failures)
        failures += (failures.empty() ? "\"" : ", \"") + code + "\": " + std::to_string(count);
    std::string out = "{\n  \"settings\": " + settings + ",\n";
    const auto line = [&](const std::string& text) { out += "  " + text + ",\n"; };
    line(member("seconds", f.seconds));
    line(member("connected", f.num_connected));
    line("\"requests\": {" + member("completed", f.num_completed) + ", " +
         member("aborted", f.num_aborted) + ", " + member("cancelled", f.num_cancelled) +
         ", \"failed\": {" + failures + "}}");
    line("\"throughput\": {" + member("requests_per_s", rate(f.num_completed)) + ", " +
         member("events_per_s", rate(f.num_deltas)) + ", " +
         member("tokens_per_s", rate(f.num_tokens)) + ", " +
         member("frames_per_s", rate(f.num_frames)) + ", " +
         member("bytes_per_s", rate(f.num_bytes)) + "}");
    line(member("ttft_ms", f.ttft));
    line(member("itl_ms", f.itl));
    line(member("duration_ms", f.duration));
    if (f.token_age.count() > 0) line(member("token_age_ms", f.token_age));
    if (f.last_byte.count() > 0) line(member("last_byte_ms", f.last_byte));
    const double us =
        f.num_frames == 0 ? 0 : f.cpu_seconds * 1e6 / static_cast<double>(f.num_frames);
    out += "  \"own_cost\": {" + member("cpu_s", f.cpu_seconds) + ", " +
           member("cpu_us_per_frame", us) + "}\n}\n";
    return out;
}

}  // namespace load
