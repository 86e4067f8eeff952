#include "daemon/text/tool_prompt.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace text {

namespace json = boost::json;

namespace {

constexpr std::string_view kHermes = "hermes", kDeepseek = "deepseek";

/// A call as the model should write it.
std::string written_call(const reply::Format& format, std::string_view name,
                         std::string_view arguments) {
    if (format.name == kDeepseek) {
        return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + std::string{name} + "<｜tool▁sep｜>" +
               std::string{arguments} + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    }
    return "<tool_call>\n{\"name\": " + json::serialize(json::string{name}) +
           ", \"arguments\": " + std::string{arguments} + "}\n</tool_call>";
}

std::string description(const json::array& tools, const reply::Format& format) {
    std::string out =
        "You may call functions to answer. Each line between the tags describes one, as JSON:\n"
        "<tools>\n";
    for (const json::value& tool : tools) out += json::serialize(tool) + "\n";
    out += "</tools>\nTo call a function, write nothing but its name and its arguments in this form:\n";
    return out + written_call(format, "NAME", R"({"PARAMETER": VALUE})");
}

std::string string_at(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string{value->get_string()}
                                                  : std::string{};
}

/// Puts a text at the end of a message's content.
void add_text(json::object& message, std::string_view text) {
    json::value& content = message["content"];
    if (content.is_array()) {
        content.get_array().push_back({{"type", "text"}, {"text", text}});
        return;
    }
    std::string all = content.is_string() ? std::string{content.get_string()} : std::string{};
    if (!all.empty()) all += "\n\n";
    content = json::string{all.append(text)};
}

bool has_role(const json::value& message, std::string_view role) {
    return message.is_object() && string_at(message.get_object(), "role") == role;
}

void describe_tools(json::array& messages, const std::string& text, bool system_role) {
    const bool has_first = !messages.empty() && messages.front().is_object();
    if (has_first && (has_role(messages.front(), "system") || !system_role))
        return add_text(messages.front().get_object(), text);
    messages.insert(messages.begin(),
                    json::object{{"role", system_role ? "system" : "user"}, {"content", text}});
}

void write_calls(json::object& message, const reply::Format& format) {
    const json::value* calls = message.if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) return;
    std::string text;
    for (const json::value& call : calls->get_array()) {
        const json::value* function =
            call.is_object() ? call.get_object().if_contains("function") : nullptr;
        if (function == nullptr || !function->is_object()) continue;
        const json::value* arguments = function->get_object().if_contains("arguments");
        const bool is_text = arguments != nullptr && arguments->is_string();
        if (!text.empty()) text += '\n';
        text += written_call(format, string_at(function->get_object(), "name"),
                             is_text                ? std::string{arguments->get_string()}
                             : arguments != nullptr ? json::serialize(*arguments)
                                                    : "{}");
    }
    message.stable_erase("tool_calls");
    if (!text.empty()) add_text(message, text);
}

/// Results become a message of the user; those that follow each other, one.
json::array write_results(json::array messages) {
    json::array out;
    bool after_result = false;
    for (json::value& message : messages) {
        const bool is_result = has_role(message, "tool");
        if (!is_result) {
            out.push_back(std::move(message));
        } else {
            if (!after_result) out.push_back({{"role", "user"}, {"content", ""}});
            add_text(out.back().get_object(), "<tool_response>\n" +
                                                  string_at(message.get_object(), "content") +
                                                  "\n</tool_response>");
        }
        after_result = is_result;
    }
    return out;
}

}  // namespace

const reply::Format& spelled_format(const reply::Format& format) {
    if (!format.calls.empty()) return format;
    return *std::ranges::find(reply::formats(), kHermes, &reply::Format::name);
}

json::array spell_out_tools(json::array messages, const json::array& tools,
                            const TemplateTraits& traits, const reply::Format& format) {
    if (!tools.empty() && !traits.shows_tools)
        describe_tools(messages, description(tools, format), traits.system_role);
    if (!traits.shows_tool_calls)
        for (json::value& message : messages)
            if (message.is_object()) write_calls(message.get_object(), format);
    return traits.shows_tool_results ? std::move(messages) : write_results(std::move(messages));
}

}  // namespace text
