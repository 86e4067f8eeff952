#include "daemon/server/protocol/conversation.hpp"

#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/json_text.hpp"

#include <boost/json/parse.hpp>

#include <set>
#include <span>
#include <unordered_map>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

constexpr std::string_view kKnownItems[] = {"message", "function_call", "function_call_output",
                                            "reasoning"};
// Types that the field knows and a text model cannot take.
constexpr std::string_view kOtherItems[] = {"file_search_call",
                                            "web_search_call",
                                            "computer_call",
                                            "computer_call_output",
                                            "code_interpreter_call",
                                            "image_generation_call",
                                            "local_shell_call",
                                            "local_shell_call_output",
                                            "shell_call",
                                            "shell_call_output",
                                            "apply_patch_call",
                                            "apply_patch_call_output",
                                            "mcp_list_tools",
                                            "mcp_approval_request",
                                            "mcp_approval_response",
                                            "mcp_call",
                                            "custom_tool_call",
                                            "custom_tool_call_output",
                                            "compaction",
                                            "program",
                                            "program_output",
                                            "tool_search_call",
                                            "tool_search_output"};
constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
constexpr std::string_view kTextParts[] = {"input_text", "output_text",  "text",
                                           "refusal",    "summary_text", "reasoning_text"};
constexpr std::string_view kOtherParts[] = {"input_image", "input_file", "input_audio",
                                            "image_url",   "file",       "video_url"};

bool contains(std::span<const std::string_view> words, std::string_view word) {
    for (const std::string_view known : words)
        if (known == word) return true;
    return false;
}

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

/// A member that is present and not null.
const json::value* find(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view string_or(const json::object& object, std::string_view key,
                           std::string_view otherwise = {}) {
    const json::value* value = find(object, key);
    return value != nullptr && value->is_string() ? view(value->get_string()) : otherwise;
}

bool require_string(const json::object& object, std::string_view key, const std::string& param,
                    FieldReader& reader) {
    const std::string at = param + "." + std::string{key};
    const json::value* value = find(object, key);
    if (value == nullptr) return reader.fail(missing_parameter(at));
    if (!value->is_string()) return reader.fail(wrong_type(at, "a string"));
    return true;
}

/// A string, or a list of text parts.
bool check_content(const json::value& content, const std::string& param, FieldReader& reader) {
    if (content.is_string()) return true;
    if (!content.is_array())
        return reader.fail(wrong_type(param, "a string or an array of content parts"));
    const json::array& parts = content.get_array();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string at = indexed(param, i);
        const json::object* part = reader.object(parts[i], at);
        if (part == nullptr || !require_string(*part, "type", at, reader)) return false;
        const std::string_view type = view(part->at("type").get_string());
        if (contains(kOtherParts, type)) {
            return reader.fail(
                invalid_request("unsupported_value", at + ".type",
                                "This model takes text only, not '" + std::string{type} + "'."));
        }
        if (!contains(kTextParts, type))
            return reader.fail(invalid_value(at + ".type", "Unknown content part type."));
        if (!require_string(*part, type == "refusal" ? "refusal" : "text", at, reader))
            return false;
    }
    return true;
}

std::string text_of(const json::value* content) {
    if (content == nullptr) return {};
    if (content->is_string()) return std::string{view(content->get_string())};
    std::string out;
    if (!content->is_array()) return out;
    for (const json::value& part : content->get_array()) {
        if (!part.is_object()) continue;
        out += string_or(part.get_object(), "text", string_or(part.get_object(), "refusal"));
    }
    return out;
}

/// Templates index arguments as an object; a string that is none stays one.
json::value arguments_of(std::string_view text) {
    auto parsed = parse_object(text.empty() ? "{}" : text);
    if (parsed) return std::move(*parsed);
    return json::string{text};
}

json::object call_of(std::string_view id, std::string_view name, std::string_view arguments) {
    return {{"id", id},
            {"type", "function"},
            {"function", json::object{{"name", name}, {"arguments", arguments_of(arguments)}}}};
}

std::string_view type_of(const json::object& item) {
    return string_or(item, "type", "message");
}

bool check_item(const json::object& item, const std::string& at, FieldReader& reader) {
    if (find(item, "type") == nullptr && find(item, "role") == nullptr)
        return reader.fail(missing_parameter(at + ".type"));
    if (const json::value* type = find(item, "type"); type != nullptr && !type->is_string())
        return reader.fail(wrong_type(at + ".type", "a string"));
    const std::string_view type = type_of(item);
    if (type == "message") {
        if (!require_string(item, "role", at, reader)) return false;
        if (!contains(kRoles, string_or(item, "role")))
            return reader.fail(invalid_value(at + ".role", "Unknown role."));
        const json::value* content = find(item, "content");
        if (content == nullptr) return reader.fail(missing_parameter(at + ".content"));
        return check_content(*content, at + ".content", reader);
    }
    if (type == "function_call") {
        return require_string(item, "call_id", at, reader) &&
               require_string(item, "name", at, reader) &&
               require_string(item, "arguments", at, reader);
    }
    if (type == "function_call_output") {
        if (!require_string(item, "call_id", at, reader)) return false;
        const json::value* output = find(item, "output");
        if (output == nullptr) return reader.fail(missing_parameter(at + ".output"));
        return check_content(*output, at + ".output", reader);
    }
    if (type == "reasoning") {
        const json::value* content = find(item, "content");
        return content == nullptr || check_content(*content, at + ".content", reader);
    }
    if (type == "item_reference") return require_string(item, "id", at, reader);
    if (contains(kOtherItems, type)) {
        return reader.fail(
            invalid_request("unsupported_value", at + ".type",
                            "Items of type '" + std::string{type} + "' are not supported."));
    }
    return reader.fail(invalid_value(at + ".type", "Unknown item type."));
}

}  // namespace

bool check_items(const json::array& items, std::string_view param, FieldReader& reader) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string at = indexed(param, i);
        const json::object* item = reader.object(items[i], at);
        if (item == nullptr || !check_item(*item, at, reader)) return false;
    }
    return true;
}

std::optional<ApiError> resolve_references(
    json::array& items,
    const std::function<const json::value*(std::string_view id)>& find_item) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (type_of(items[i].get_object()) != "item_reference") continue;
        const json::value* found = find_item(string_or(items[i].get_object(), "id"));
        if (found == nullptr)
            return invalid_value(indexed("input", i), "The referenced item is not stored here.");
        items[i] = json::value(*found);
    }
    return std::nullopt;
}

std::optional<ApiError> check_call_pairs(const json::array& context) {
    std::set<std::string_view> calls;
    std::set<std::string_view> open;
    for (const json::value& value : context) {
        const json::object& item = value.get_object();
        const std::string_view type = type_of(item);
        const std::string_view id = string_or(item, "call_id");
        if (type == "function_call") {
            calls.insert(id);
            open.insert(id);
        } else if (type == "function_call_output") {
            if (!calls.contains(id)) {
                return invalid_request(
                    "tool_call_not_found", "input",
                    "No tool call found for function call output with call_id '" +
                        excerpt(id, 128) + "'.");
            }
            open.erase(id);
        } else if (type == "message" && string_or(item, "role") == "user" && !open.empty()) {
            return invalid_request("tool_output_missing", "input",
                                   "No tool output found for function call '" +
                                       excerpt(*open.begin(), 128) + "'.");
        }
    }
    return std::nullopt;
}

json::array to_messages(const json::array& context, std::string_view instructions) {
    json::array out;
    if (!instructions.empty()) out.push_back({{"role", "system"}, {"content", instructions}});
    std::string reasoning;  // of the assistant message that follows
    const auto assistant = [&]() -> json::object& {
        if (!reasoning.empty() || out.empty() ||
            out.back().at("role").get_string() != "assistant") {
            json::object message{{"role", "assistant"}, {"content", ""}};
            if (!reasoning.empty()) message["reasoning_content"] = std::exchange(reasoning, {});
            out.push_back(std::move(message));
        }
        return out.back().get_object();
    };
    for (const json::value& value : context) {
        const json::object& item = value.get_object();
        const std::string_view type = type_of(item);
        if (type == "message") {
            std::string_view role = string_or(item, "role");
            if (role == "developer") role = "system";
            // Reasoning that was cut off before an answer is a turn of its own.
            if (role != "assistant" && !reasoning.empty()) assistant();
            json::object message{{"role", role}, {"content", text_of(find(item, "content"))}};
            if (role == "assistant" && !reasoning.empty())
                message["reasoning_content"] = std::exchange(reasoning, {});
            out.push_back(std::move(message));
        } else if (type == "reasoning") {
            const std::string text = text_of(find(item, "content"));
            reasoning += text.empty() ? text_of(find(item, "summary")) : text;
        } else if (type == "function_call") {
            json::object& message = assistant();
            if (!message.contains("tool_calls")) message["tool_calls"] = json::array{};
            message["tool_calls"].get_array().push_back(call_of(
                string_or(item, "call_id"), string_or(item, "name"), string_or(item, "arguments")));
        } else if (type == "function_call_output") {
            if (!reasoning.empty()) assistant();
            out.push_back({{"role", "tool"},
                           {"tool_call_id", string_or(item, "call_id")},
                           {"content", text_of(find(item, "output"))}});
        }
    }
    return out;
}

std::size_t memory_of(const json::value& value) {
    if (value.is_string()) return sizeof value + value.get_string().capacity();
    if (value.is_array()) return memory_of(value.get_array());
    if (value.is_object()) return memory_of(value.get_object());
    return sizeof value;
}

std::size_t memory_of(const json::array& values) {
    std::size_t bytes = sizeof(json::value);
    for (const json::value& value : values) bytes += memory_of(value);
    return bytes;
}

std::size_t memory_of(const json::object& object) {
    std::size_t bytes = sizeof(json::value);
    for (const auto& [key, value] : object) bytes += key.size() + memory_of(value);
    return bytes;
}

Truncation::Truncation(const json::array& context)
    : context_{context}, step_(context.size(), 0) {
    const auto is_fixed = [&](std::size_t i) {
        const std::string_view role = string_or(context[i].get_object(), "role");
        return role == "system" || role == "developer";
    };
    const auto call_id = [&](std::size_t i) {
        return string_or(context[i].get_object(), "call_id");
    };
    const std::string_view last_call = context.empty() ? "" : call_id(context.size() - 1);
    std::unordered_map<std::string_view, std::size_t> call_steps;
    std::size_t num_steps = 0;
    for (std::size_t i = 0; i + 1 < context.size(); ++i) {
        const std::string_view id = call_id(i);
        if (is_fixed(i) || (!id.empty() && id == last_call)) continue;
        if (const auto call = call_steps.find(id); call != call_steps.end()) {
            step_[i] = call->second;  // went with the other half
            continue;
        }
        step_[i] = ++num_steps;
        if (!id.empty()) call_steps.emplace(id, num_steps);
        std::size_t next = i + 1;  // the oldest item that is left and might go
        while (next + 1 < context.size() && (is_fixed(next) || call_steps.contains(call_id(next))))
            ++next;
        if (string_or(context[next].get_object(), "role") == "user") choices_.push_back(num_steps);
    }
    // Should that not be enough, any beginning will have to do.
    const std::size_t tried = choices_.empty() ? 0 : choices_.back();
    for (std::size_t step = tried + 1; step <= num_steps; ++step) choices_.push_back(step);
}

json::array Truncation::shortened(std::size_t choice) const {
    json::array out;
    for (std::size_t i = 0; i < context_.size(); ++i)
        if (step_[i] == 0 || step_[i] > choices_[choice]) out.push_back(context_[i]);
    return out;
}

namespace {

bool read_tool_calls(const json::value& value, const std::string& at, json::object& out,
                     FieldReader& reader) {
    const json::array* calls = reader.array(value, at);
    if (calls == nullptr) return false;
    json::array list;
    for (std::size_t i = 0; i < calls->size(); ++i) {
        const std::string call_at = indexed(at, i);
        const json::object* call = reader.object((*calls)[i], call_at);
        if (call == nullptr) return false;
        const json::value* function = find(*call, "function");
        if (function == nullptr) return reader.fail(missing_parameter(call_at + ".function"));
        const json::object* body = reader.object(*function, call_at + ".function");
        if (body == nullptr || !require_string(*body, "name", call_at + ".function", reader) ||
            !require_string(*body, "arguments", call_at + ".function", reader))
            return false;
        if (const json::value* id = find(*call, "id"); id != nullptr && !id->is_string())
            return reader.fail(wrong_type(call_at + ".id", "a string"));
        list.push_back(call_of(string_or(*call, "id"), string_or(*body, "name"),
                               string_or(*body, "arguments")));
    }
    if (!list.empty()) out["tool_calls"] = std::move(list);
    return true;
}

}  // namespace

std::optional<json::array> read_messages(const json::array& messages, FieldReader& reader) {
    json::array out;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const std::string at = indexed("messages", i);
        const json::object* message = reader.object(messages[i], at);
        if (message == nullptr || !require_string(*message, "role", at, reader))
            return std::nullopt;
        std::string role{string_or(*message, "role")};
        if (!contains(kRoles, role) && role != "tool") {
            reader.fail(invalid_value(at + ".role", "Unknown role."));
            return std::nullopt;
        }
        if (role == "developer") role = "system";
        json::object read{{"role", role}};
        if (role == "tool") {
            if (!require_string(*message, "tool_call_id", at, reader)) return std::nullopt;
            read["tool_call_id"] = message->at("tool_call_id");
        }
        const json::value* content = find(*message, "content");
        const json::value* calls = role == "assistant" ? find(*message, "tool_calls") : nullptr;
        if (content == nullptr && calls == nullptr) {
            reader.fail(missing_parameter(at + ".content"));
            return std::nullopt;
        }
        if (content != nullptr && !check_content(*content, at + ".content", reader))
            return std::nullopt;
        read["content"] = text_of(content);
        if (const std::string_view name = string_or(*message, "name"); !name.empty())
            read["name"] = name;
        if (const std::string_view thought = string_or(*message, "reasoning_content");
            role == "assistant" && !thought.empty())
            read["reasoning_content"] = thought;
        if (calls != nullptr && !read_tool_calls(*calls, at + ".tool_calls", read, reader))
            return std::nullopt;
        out.push_back(std::move(read));
    }
    return out;
}

}  // namespace server
