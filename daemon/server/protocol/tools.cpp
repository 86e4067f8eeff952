#include "daemon/server/protocol/tools.hpp"

#include <string>

namespace server {
namespace json = boost::json;
namespace {

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

std::string_view string_member(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? view(value->get_string()) : std::string_view{};
}

bool is_function_name(std::string_view name) {
    if (name.empty() || name.size() > 64) return false;
    for (const char c : name) {
        const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!is_fine) return false;
    }
    return true;
}

bool read_function(const json::object& body, const std::string& at, json::array& functions,
                   FieldReader& reader) {
    const json::value* name = body.if_contains("name");
    if (name == nullptr || name->is_null()) return reader.fail(missing_parameter(at + ".name"));
    if (!name->is_string()) return reader.fail(wrong_type(at + ".name", "a string"));
    if (!is_function_name(view(name->get_string()))) {
        return reader.fail(invalid_value(
            at + ".name", "Function names have 1 to 64 characters from A-Z a-z 0-9 _ -."));
    }
    json::object function{{"name", *name}};
    if (const json::value* about = body.if_contains("description");
        about != nullptr && !about->is_null()) {
        if (!about->is_string()) return reader.fail(wrong_type(at + ".description", "a string"));
        function["description"] = *about;
    }
    const json::value* parameters = body.if_contains("parameters");
    if (parameters != nullptr && !parameters->is_null()) {
        if (!parameters->is_object())
            return reader.fail(wrong_type(at + ".parameters", "an object"));
        function["parameters"] = *parameters;
    } else {
        function["parameters"] = json::object{{"type", "object"}, {"properties", json::object{}}};
    }
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    return true;
}

bool has_function(const json::array& functions, std::string_view name) {
    for (const json::value& function : functions)
        if (view(function.at("function").at("name").get_string()) == name) return true;
    return false;
}

std::string_view chosen_name(const json::object& choice) {
    const json::value* function = choice.if_contains("function");  // chat shape
    if (function != nullptr && function->is_object())
        return string_member(function->get_object(), "name");
    return string_member(choice, "name");
}

}  // namespace

bool read_tools(const json::value& value, bool reject_hosted, json::array& functions,
                FieldReader& reader) {
    const json::array* tools = reader.array(value, "tools");
    if (tools == nullptr) return false;
    for (std::size_t i = 0; i < tools->size(); ++i) {
        const std::string at = indexed("tools", i);
        const json::object* tool = reader.object((*tools)[i], at);
        if (tool == nullptr) return false;
        const json::value* type = tool->if_contains("type");
        if (type == nullptr || type->is_null()) return reader.fail(missing_parameter(at + ".type"));
        if (!type->is_string()) return reader.fail(wrong_type(at + ".type", "a string"));
        if (view(type->get_string()) != "function") {
            if (!reject_hosted) continue;
            return reader.fail(invalid_request("unsupported_value", at + ".type",
                                               "Only tools of type 'function' are supported."));
        }
        const json::value* body = tool->if_contains("function");
        const bool is_nested = body != nullptr && body->is_object();
        if (!read_function(is_nested ? body->get_object() : *tool,
                           is_nested ? at + ".function" : at, functions, reader))
            return false;
    }
    return true;
}

bool check_tool_choice(const json::value& value, const json::array& functions, bool& is_forced,
                       FieldReader& reader) {
    if (value.is_null()) return true;
    const auto need_tools = [&] {
        return !functions.empty() || reader.fail(missing_parameter("tools"));
    };
    if (value.is_string()) {
        const std::string_view word = view(value.get_string());
        if (word == "none" || word == "auto") return true;
        is_forced = true;
        if (word == "required") return need_tools();
        return reader.fail(invalid_value("tool_choice", "Unknown value for 'tool_choice'."));
    }
    if (!value.is_object()) return reader.fail(wrong_type("tool_choice", "a string or an object"));
    const json::object& choice = value.get_object();
    const std::string_view type = string_member(choice, "type");
    if (type == "function") {
        is_forced = true;
        const std::string_view name = chosen_name(choice);
        if (has_function(functions, name)) return true;
        return reader.fail(invalid_value("tool_choice", "The chosen function is not in 'tools'."));
    }
    if (type == "allowed_tools") {
        const json::value* nested = choice.if_contains("allowed_tools");  // chat shape
        const json::object& body =
            nested != nullptr && nested->is_object() ? nested->get_object() : choice;
        const std::string_view mode = string_member(body, "mode");
        if (mode != "auto" && mode != "required")
            return reader.fail(invalid_value("tool_choice", "Unknown mode of allowed tools."));
        is_forced = mode == "required";
        const json::value* tools = body.if_contains("tools");
        if (tools == nullptr || !tools->is_array())
            return reader.fail(missing_parameter("tool_choice.tools"));
        for (const json::value& tool : tools->get_array()) {
            if (!tool.is_object() || string_member(tool.get_object(), "type") != "function" ||
                !has_function(functions, chosen_name(tool.get_object())))
                return reader.fail(
                    invalid_value("tool_choice", "An allowed tool is not in 'tools'."));
        }
        return need_tools();
    }
    return reader.fail(
        invalid_request("unsupported_value", "tool_choice", "Only functions can be chosen."));
}

bool is_schema(const json::value& schema, int depth) {
    constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                           "object", "array",  "null"};
    const auto is_type = [&](const json::value& word) {
        if (!word.is_string()) return false;
        for (const std::string_view type : kTypes)
            if (type == view(word.get_string())) return true;
        return false;
    };
    if (schema.is_bool()) return depth > 0;
    if (!schema.is_object() || depth > 100) return false;
    for (const auto& [name, value] : schema.get_object()) {
        const std::string_view key{name};
        if (key == "type") {
            if (value.is_array()) {
                for (const json::value& word : value.get_array())
                    if (!is_type(word)) return false;
            } else if (!is_type(value)) {
                return false;
            }
        } else if (key == "properties" || key == "$defs" || key == "definitions" ||
                   key == "patternProperties") {
            if (!value.is_object()) return false;
            for (const auto& [property, inner] : value.get_object())
                if (!is_schema(inner, depth + 1)) return false;
        } else if (key == "items" || key == "additionalProperties" || key == "not") {
            if (!is_schema(value, depth + 1)) return false;
        } else if (key == "anyOf" || key == "oneOf" || key == "allOf") {
            if (!value.is_array() || value.get_array().empty()) return false;
            for (const json::value& inner : value.get_array())
                if (!is_schema(inner, depth + 1)) return false;
        } else if (key == "enum" || key == "required") {
            if (!value.is_array()) return false;
        }
    }
    return true;
}

}  // namespace server
