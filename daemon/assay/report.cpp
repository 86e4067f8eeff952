#include "daemon/assay/report.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace assay {
namespace {

constexpr std::array<std::string_view, kNumLevels> kLevels = {"resolve", "audit", "kernels",
                                                              "model",   "coherence", "watch"};
constexpr std::array<std::string_view, 3> kVerdicts = {"passed", "failed", "not_run"};

template <std::size_t n>
std::size_t index_of(const std::array<std::string_view, n>& words, std::string_view word) {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) throw std::runtime_error{"unknown word \"" + std::string{word} + '"'};
    return static_cast<std::size_t>(found - words.begin());
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
}

/// JSON has no infinity and no NaN.
double finite(double value) {
    if (std::isnan(value)) return 1e308;
    return std::clamp(value, -1e308, 1e308);
}

std::string text_of(const boost::json::object& o, const char* key) { return boost::json::value_to<std::string>(o.at(key)); }

}  // namespace

std::string_view name(Level level) { return kLevels[static_cast<std::size_t>(level)]; }
std::string_view name(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }

std::string Subject::to_text() const {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (layer >= 0) add("layer " + std::to_string(layer));
    if (!op.empty()) add(op);
    if (!plugin.empty()) add("plugin " + plugin);
    if (!tensor.empty()) add("tensor " + tensor);
    return text;
}

std::string to_line(const Check& check) {
    char head[160];
    std::snprintf(head, sizeof head, "%-8s %-30s", check.verdict == Verdict::not_run ? "not run" : kVerdicts[static_cast<std::size_t>(check.verdict)].data(),
                  check.id.c_str());
    std::string line = head;
    if (check.verdict != Verdict::not_run) {
        std::snprintf(head, sizeof head, " %9s of %-9s %7.1f ms", number(check.figure).c_str(), number(check.bound).c_str(),
                      check.seconds * 1e3);
        line += head;
    }
    if (const std::string subject = check.subject.to_text(); !subject.empty()) line += "  " + subject;
    if (!check.detail.empty()) line += "  " + check.detail;
    return line;
}

bool Report::passed(Level level) const {
    bool any = false;
    for (const Check& check : checks) {
        if (check.level != level) continue;
        if (check.verdict == Verdict::failed) return false;
        if (check.verdict == Verdict::not_run && check.required) return false;
        any = any || check.verdict == Verdict::passed;
    }
    return any;
}

bool Report::passed() const {
    for (const Check& check : checks)
        if (check.verdict == Verdict::failed || (check.verdict == Verdict::not_run && check.required)) return false;
    return finished_at != 0 && passed(Level::kernels) && passed(Level::model) && passed(Level::coherence);
}

const Check* Report::first_failure() const {
    const auto failed = std::find_if(checks.begin(), checks.end(), [](const Check& c) { return c.verdict == Verdict::failed; });
    return failed == checks.end() ? nullptr : &*failed;
}

std::string Report::diagnosis() const {
    if (passed()) return {};
    const auto said = [](const Check& check) {
        const std::string subject = check.subject.to_text();
        return "assay failed at level " + std::string{name(check.level)} + ": " + check.id + (subject.empty() ? "" : ": " + subject) + ": " +
               check.detail;
    };
    if (const Check* failed = first_failure()) return said(*failed);
    for (const Check& check : checks)
        if (check.verdict == Verdict::not_run && check.required)
            return "assay incomplete: " + check.id + " was not run: " + check.detail;
    for (const Level level : {Level::kernels, Level::model, Level::coherence})
        if (!passed(level)) return "assay incomplete: nothing was proven at level " + std::string{name(level)};
    return "assay incomplete: it did not finish";
}

std::string Report::to_text() const {
    std::string text;
    for (std::size_t l = 0; l < kNumLevels; ++l) {
        bool is_first = true;
        for (const Check& check : checks) {
            if (static_cast<std::size_t>(check.level) != l) continue;
            if (is_first) text += std::string{kLevels[l]} + '\n';
            is_first = false;
            text += "  " + to_line(check) + '\n';
        }
    }
    std::size_t count[3] = {};
    for (const Check& check : checks) ++count[static_cast<std::size_t>(check.verdict)];
    char line[200];
    std::snprintf(line, sizeof line, "%s: %zu passed, %zu failed, %zu not run; %s%s, %.2f s, seed %llu\n", passed() ? "passed" : "NOT PROVEN",
                  count[0], count[1], count[2], depth.c_str(), from_cache ? " (from the cache)" : "", seconds,
                  static_cast<unsigned long long>(seed));
    return text + line;
}

std::string Report::to_json() const {
    boost::json::array list;
    for (const Check& c : checks) {
        boost::json::object subject;
        if (!c.subject.plugin.empty()) subject["plugin"] = c.subject.plugin;
        if (!c.subject.tensor.empty()) subject["tensor"] = c.subject.tensor;
        if (!c.subject.op.empty()) subject["op"] = c.subject.op;
        if (c.subject.layer >= 0) subject["layer"] = c.subject.layer;
        list.push_back(boost::json::object{{"id", c.id},
                                           {"level", name(c.level)},
                                           {"subject", std::move(subject)},
                                           {"figure", finite(c.figure)},
                                           {"bound", finite(c.bound)},
                                           {"seconds", c.seconds},
                                           {"verdict", name(c.verdict)},
                                           {"required", c.required},
                                           {"detail", c.detail}});
    }
    boost::json::object measured;
    for (const auto& [key, value] : figures) measured[key] = finite(value);
    const boost::json::object out{{"object", "assay.report"},
                                  {"passed", passed()},
                                  {"diagnosis", diagnosis()},
                                  {"model", model},
                                  {"model_hash", model_hash},
                                  {"plan", plan_hash},
                                  {"depth", depth},
                                  {"seed", seed},
                                  {"seconds", seconds},
                                  {"finished_at", finished_at},
                                  {"from_cache", from_cache},
                                  {"figures", std::move(measured)},
                                  {"checks", std::move(list)}};
    return boost::json::serialize(out);
}

Report Report::from_json(std::string_view text) {
    const boost::json::object o = boost::json::parse(text).as_object();
    Report report;
    report.model = text_of(o, "model");
    report.model_hash = text_of(o, "model_hash");
    report.plan_hash = text_of(o, "plan");
    report.depth = text_of(o, "depth");
    report.seed = boost::json::value_to<std::uint64_t>(o.at("seed"));
    report.seconds = boost::json::value_to<double>(o.at("seconds"));
    report.finished_at = boost::json::value_to<std::int64_t>(o.at("finished_at"));
    for (const auto& [key, value] : o.at("figures").as_object()) report.figures[key] = boost::json::value_to<double>(value);
    for (const auto& item : o.at("checks").as_array()) {
        const auto& c = item.as_object();
        Check check;
        check.id = text_of(c, "id");
        check.level = static_cast<Level>(index_of(kLevels, text_of(c, "level")));
        check.verdict = static_cast<Verdict>(index_of(kVerdicts, text_of(c, "verdict")));
        const auto& subject = c.at("subject").as_object();
        if (subject.contains("plugin")) check.subject.plugin = text_of(subject, "plugin");
        if (subject.contains("tensor")) check.subject.tensor = text_of(subject, "tensor");
        if (subject.contains("op")) check.subject.op = text_of(subject, "op");
        if (subject.contains("layer")) check.subject.layer = boost::json::value_to<std::int64_t>(subject.at("layer"));
        check.figure = boost::json::value_to<double>(c.at("figure"));
        check.bound = boost::json::value_to<double>(c.at("bound"));
        check.seconds = boost::json::value_to<double>(c.at("seconds"));
        check.required = c.at("required").as_bool();
        check.detail = text_of(c, "detail");
        report.checks.push_back(std::move(check));
    }
    return report;
}

}  // namespace assay
