#include "daemon/text/reply/tools.hpp"

#include <boost/json.hpp>

#include <cstdio>

namespace reply {

namespace json = boost::json;

namespace {

const json::object* object_at(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

const json::string* string_at(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? &value->get_string() : nullptr;
}

ParameterType type_of_schema(const json::value& schema) {
    if (!schema.is_object()) return ParameterType::other;
    const json::string* type = string_at(schema.get_object(), "type");
    return type != nullptr && *type == "string" ? ParameterType::string : ParameterType::other;
}

bool is_json(std::string_view text, json::value& value) {
    boost::system::error_code error;
    value = json::parse(json::string_view{text.data(), text.size()}, error);
    return !error;
}

}  // namespace

Tools::Tools(const json::array& tools) {
    for (const json::value& tool : tools) {
        if (!tool.is_object()) continue;
        const json::object* function = object_at(tool.get_object(), "function");
        if (function == nullptr) function = &tool.get_object();
        const json::string* name = string_at(*function, "name");
        if (name == nullptr) continue;
        Parameters& parameters = parameters_[std::string{*name}];
        const json::object* schema = object_at(*function, "parameters");
        const json::object* properties =
            schema == nullptr ? nullptr : object_at(*schema, "properties");
        if (properties == nullptr) continue;
        for (const auto& [key, property] : *properties)
            parameters[std::string{key}] = type_of_schema(property);
    }
}

ParameterType Tools::type_of(std::string_view tool, std::string_view parameter) const {
    const auto parameters = parameters_.find(tool);
    if (parameters == parameters_.end()) return ParameterType::undeclared;
    const auto type = parameters->second.find(parameter);
    return type == parameters->second.end() ? ParameterType::undeclared : type->second;
}

std::string json_of_text(std::string_view text, ParameterType type) {
    std::string_view trimmed = text;
    while (!trimmed.empty() && std::string_view{" \t\r\n"}.find(trimmed.front()) != trimmed.npos)
        trimmed.remove_prefix(1);
    while (!trimmed.empty() && std::string_view{" \t\r\n"}.find(trimmed.back()) != trimmed.npos)
        trimmed.remove_suffix(1);
    json::value value;
    if (is_json(trimmed, value)) {
        const bool is_bare = !value.is_object() && !value.is_array() && !value.is_string();
        if (type == ParameterType::other || !is_bare) return std::string{trimmed};
    } else if (type == ParameterType::other) {
        if (trimmed == "True") return "true";
        if (trimmed == "False") return "false";
        if (trimmed == "None") return "null";
    }
    std::string out = "\"";
    append_json_string(out, text);
    out.push_back('"');
    return out;
}

void append_json_string(std::string& out, std::string_view text) {
    for (const char c : text) {
        switch (c) {
            case '"':
            case '\\':
                out.push_back('\\');
                out.push_back(c);
                break;
            case '\n':
                out.append("\\n");
                break;
            case '\r':
                out.append("\\r");
                break;
            case '\t':
                out.append("\\t");
                break;
            default:
                if (static_cast<unsigned char>(c) >= 0x20) {
                    out.push_back(c);
                    break;
                }
                char escape[8];
                std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
                out.append(escape);
        }
    }
}

}  // namespace reply
