#pragma once

#include "daemon/text/reply/parser.hpp"

#include <boost/json.hpp>

#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace reply_test {

namespace json = boost::json;

inline std::string read_file(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw std::runtime_error{path + ": cannot be opened"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

inline const std::string kTemplates = ASSAY_TEST_DATA "/text/templates/";

inline const json::value& golden() {
    static const json::value cases = json::parse(read_file(kTemplates + "parse_cases.json"));
    return cases;
}

/// The tools that all golden cases declare, as a request spells them.
inline std::shared_ptr<const reply::Tools> golden_tools() {
    json::array tools;
    for (const json::value& tool : golden().at("tools").as_array()) {
        json::object properties;
        for (const auto& [key, type] : tool.at("parameters").as_object())
            properties[key] = json::object{{"type", type}};
        tools.push_back(json::object{
            {"type", "function"},
            {"function",
             json::object{{"name", tool.at("name")},
                          {"parameters", json::object{{"type", "object"},
                                                      {"properties", std::move(properties)}}}}}});
    }
    return std::make_shared<const reply::Tools>(tools);
}

inline const reply::Format& format(std::string_view name) {
    for (const reply::Format& row : reply::formats())
        if (row.name == name) return row;
    throw std::runtime_error{"no format " + std::string{name}};
}

/// The row that reads what the golden data calls by the models' names.
inline const reply::Format& golden_format(std::string_view name) {
    constexpr std::pair<std::string_view, std::string_view> kRows[] = {
        {"glm-4.5", "glm"},
        {"glm-4.7", "glm"},
        {"qwen3", "hermes"},
        {"qwen3-coder", "qwen3-coder"},
        {"qwen3.5", "qwen3-coder"},
        {"deepseek-r1", "deepseek"},
        {"deepseek-v3.1", "deepseek"},
        {"deepseek-v3.2", "dsml"},
        {"llama-3.x", "llama"},
        {"llama-3.1", "llama"},
        {"mistral-v3", "mistral"},
        {"mistral-v13", "mistral"},
        {"mistral-v11", "mistral"},
        {"mistral-reasoning", "mistral"}};
    for (const auto& [model, row] : kRows)
        if (model == name) return format(row);
    throw std::runtime_error{"no format " + std::string{name}};
}

/// What all events of a reply say together.
struct Reply {
    struct Call {
        std::string name, id, arguments, error;
        bool ended = false;
        friend bool operator==(const Call&, const Call&) = default;
    };
    std::string reasoning, content;
    std::vector<Call> calls;
    friend bool operator==(const Reply&, const Reply&) = default;

    friend void PrintTo(const Reply& reply, std::ostream* out) {
        *out << "reasoning " << json::serialize(json::string_view{reply.reasoning}) << ", content "
             << json::serialize(json::string_view{reply.content});
        for (const Call& call : reply.calls)
            *out << ", call " << call.name << " " << call.id << " "
                 << json::serialize(json::string_view{call.arguments}) << " " << call.error;
    }

    void add(const reply::Event& event) {
        using Kind = reply::Event::Kind;
        switch (event.kind) {
            case Kind::content:
                content += event.text;
                return;
            case Kind::reasoning:
                reasoning += event.text;
                return;
            case Kind::call_begin:
                if (event.call != calls.size()) throw std::logic_error{"calls out of order"};
                if (!calls.empty() && !calls.back().ended)
                    throw std::logic_error{"two calls open at once"};
                calls.push_back({event.text, event.id, {}, {}, false});
                return;
            case Kind::arguments:
                open(event).arguments += event.text;
                return;
            case Kind::call_end:
                open(event).ended = true;
                if (!event.id.empty()) calls.back().id = event.id;
                return;
            case Kind::call_failed:
                open(event).error = event.text;
                calls.back().ended = true;
                return;
        }
    }

private:
    Call& open(const reply::Event& event) {
        if (event.call + 1 != calls.size() || calls.back().ended)
            throw std::logic_error{"an event of a call that is not open"};
        return calls.back();
    }
};

/// Parses a reply that arrives in these pieces.
inline Reply parse(const reply::Format& format, const std::vector<std::string_view>& pieces,
                   const reply::ParserOptions& options) {
    reply::Parser parser{format, options};
    Reply out;
    std::vector<reply::Event> events;
    const auto drain = [&] {
        for (const reply::Event& event : events) out.add(event);
        events.clear();
    };
    for (const std::string_view piece : pieces) {
        parser.feed(piece, events);
        drain();
    }
    parser.finish(events);
    drain();
    return out;
}

inline Reply parse(std::string_view format_name, std::string_view text,
                   reply::ParserOptions options = {.tools = golden_tools()}) {
    return parse(format(format_name), {text}, options);
}

}  // namespace reply_test
