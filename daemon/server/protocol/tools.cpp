#include "daemon/server/protocol/tools.hpp"

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace server {
namespace json = boost::json;
namespace {

using Calls = base::OutputRules::Calls;

/// The functions of `tools`: one entry each in both lists, in the order of the request.
struct Functions {
    json::array shown;  // chat shape
    std::vector<base::CallableTool> callable;

    [[nodiscard]] const base::CallableTool* find(std::string_view name) const {
        const auto found = std::ranges::find(callable, name, &base::CallableTool::name);
        return found == callable.end() ? nullptr : &*found;
    }
    /// Leaves only those that have one of the names.
    void keep(const std::vector<std::string_view>& names) {
        for (std::size_t i = callable.size(); i-- > 0;) {
            if (std::ranges::find(names, callable[i].name) != names.end()) continue;
            callable.erase(callable.begin() + static_cast<std::ptrdiff_t>(i));
            shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
};

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

const json::value* given(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view string_member(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? view(value->get_string()) : std::string_view{};
}

bool is_function_name(std::string_view name) {
    return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    });
}

bool read_function(const json::object& body, const std::string& at, Functions& functions,
                   FieldReader& reader) {
    base::CallableTool tool;
    const json::value* name = given(body, "name");
    if (name == nullptr) return reader.fail(missing_parameter(at + ".name"));
    if (!reader.string(*name, at + ".name", tool.name)) return false;
    if (!is_function_name(tool.name)) {
        return reader.fail(invalid_value(
            at + ".name", "Function names have 1 to 64 characters from A-Z a-z 0-9 _ -."));
    }
    json::object function{{"name", *name}};
    if (const json::value* about = given(body, "description")) {
        if (!about->is_string()) return reader.fail(wrong_type(at + ".description", "a string"));
        function["description"] = *about;
    }
    if (const json::value* parameters = given(body, "parameters")) {
        if (!parameters->is_object())
            return reader.fail(wrong_type(at + ".parameters", "an object"));
        function["parameters"] = *parameters;
    } else {
        function["parameters"] = json::object{{"type", "object"}, {"properties", json::object{}}};
    }
    if (const json::value* strict = given(body, "strict");
        strict != nullptr && !reader.boolean(*strict, at + ".strict", tool.strict))
        return false;
    tool.parameters = json::serialize(function["parameters"]);
    functions.callable.push_back(std::move(tool));
    functions.shown.push_back({{"type", "function"}, {"function", std::move(function)}});
    return true;
}

bool read_functions(const json::value& value, bool reject_hosted, Functions& functions,
                    FieldReader& reader) {
    const json::array* tools = reader.array(value, "tools");
    if (tools == nullptr) return false;
    for (std::size_t i = 0; i < tools->size(); ++i) {
        const std::string at = indexed("tools", i);
        const json::object* tool = reader.object((*tools)[i], at);
        if (tool == nullptr) return false;
        const json::value* type = given(*tool, "type");
        if (type == nullptr) return reader.fail(missing_parameter(at + ".type"));
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

std::string_view chosen_name(const json::object& choice) {
    const json::value* function = choice.if_contains("function");  // chat shape
    if (function != nullptr && function->is_object())
        return string_member(function->get_object(), "name");
    return string_member(choice, "name");
}

/// {type:allowed_tools, mode, tools}
bool read_allowed(const json::object& choice, Functions& functions, Calls& calls,
                  FieldReader& reader) {
    const json::value* nested = choice.if_contains("allowed_tools");  // chat shape
    const json::object& body =
        nested != nullptr && nested->is_object() ? nested->get_object() : choice;
    const std::string_view mode = string_member(body, "mode");
    if (mode != "auto" && mode != "required")
        return reader.fail(invalid_value("tool_choice", "Unknown mode of allowed tools."));
    if (mode == "required") calls = Calls::required;
    const json::value* tools = given(body, "tools");
    if (tools == nullptr || !tools->is_array())
        return reader.fail(missing_parameter("tool_choice.tools"));
    std::vector<std::string_view> names;
    for (const json::value& tool : tools->get_array()) {
        if (!tool.is_object() || string_member(tool.get_object(), "type") != "function" ||
            functions.find(chosen_name(tool.get_object())) == nullptr)
            return reader.fail(invalid_value("tool_choice", "An allowed tool is not in 'tools'."));
        names.push_back(chosen_name(tool.get_object()));
    }
    if (functions.callable.empty()) return reader.fail(missing_parameter("tools"));
    functions.keep(names);
    if (functions.callable.empty() && calls == Calls::required)
        return reader.fail(invalid_value("tool_choice", "A call is required and none is allowed."));
    return true;
}

bool read_choice(const json::value& value, Functions& functions, Calls& calls,
                 FieldReader& reader) {
    if (value.is_string()) {
        const std::string_view word = view(value.get_string());
        if (word == "auto") return true;
        if (word == "none") {
            functions = {};
            return true;
        }
        if (word != "required")
            return reader.fail(invalid_value("tool_choice", "Unknown value for 'tool_choice'."));
        calls = Calls::required;
        return !functions.callable.empty() || reader.fail(missing_parameter("tools"));
    }
    if (!value.is_object()) return reader.fail(wrong_type("tool_choice", "a string or an object"));
    const json::object& choice = value.get_object();
    const std::string_view type = string_member(choice, "type");
    if (type == "allowed_tools") return read_allowed(choice, functions, calls, reader);
    if (type != "function") {
        return reader.fail(
            invalid_request("unsupported_value", "tool_choice", "Only functions can be chosen."));
    }
    const std::string_view name = chosen_name(choice);
    if (functions.find(name) == nullptr)
        return reader.fail(invalid_value("tool_choice", "The chosen function is not in 'tools'."));
    calls = Calls::required;
    functions.keep({name});
    return true;
}

}  // namespace

bool read_tools(const json::object& message, bool reject_hosted, json::array& functions,
                base::OutputRules& rules, FieldReader& reader) {
    Functions read;
    if (const json::value* tools = given(message, "tools");
        tools != nullptr && !read_functions(*tools, reject_hosted, read, reader))
        return false;
    Calls calls = Calls::allowed;
    if (const json::value* choice = given(message, "tool_choice");
        choice != nullptr && !read_choice(*choice, read, calls, reader))
        return false;
    rules.calls = read.callable.empty() ? Calls::none : calls;
    rules.tools = std::move(read.callable);
    functions = std::move(read.shown);
    return true;
}

}  // namespace server
