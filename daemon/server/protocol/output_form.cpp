#include "daemon/server/protocol/output_form.hpp"

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>

namespace server {
namespace json = boost::json;
namespace {

using Form = base::OutputRules::Form;

constexpr std::string_view kForms[] = {"text", "json_object", "json_schema"};  // as Form counts
constexpr std::size_t kMaxNameBytes = 64;

const json::value* given(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

bool read_schema(const json::object& body, const std::string& at, base::OutputRules& rules,
                 FieldReader& reader) {
    const json::value* name = given(body, "name");
    if (name == nullptr) return reader.fail(missing_parameter(at + ".name"));
    if (!reader.string(*name, at + ".name", rules.schema_name, kMaxNameBytes)) return false;
    const json::value* schema = given(body, "schema");
    if (schema == nullptr) return reader.fail(missing_parameter(at + ".schema"));
    if (!is_schema(*schema)) {
        return reader.fail(invalid_request("invalid_json_schema", at + ".schema",
                                           "'" + at + ".schema' is not a JSON schema."));
    }
    rules.schema = json::serialize(*schema);
    const json::value* strict = given(body, "strict");
    return strict == nullptr || reader.boolean(*strict, at + ".strict", rules.strict);
}

}  // namespace

bool read_output_form(const json::value& value, std::string_view param, bool is_nested,
                      base::OutputRules& rules, FieldReader& reader) {
    const std::string at{param};
    const json::object* format = reader.object(value, at);
    if (format == nullptr) return false;
    const json::value* type = given(*format, "type");
    if (type == nullptr) return reader.fail(missing_parameter(at + ".type"));
    std::string word;
    if (!reader.word(*type, at + ".type", kForms, word)) return false;
    rules.form = static_cast<Form>(std::ranges::find(kForms, word) - std::begin(kForms));
    if (rules.form != Form::json_schema) return true;
    if (!is_nested) return read_schema(*format, at, rules, reader);
    const json::value* nested = given(*format, "json_schema");
    if (nested == nullptr) return reader.fail(missing_parameter(at + ".json_schema"));
    const json::object* body = reader.object(*nested, at + ".json_schema");
    return body != nullptr && read_schema(*body, at + ".json_schema", rules, reader);
}

bool is_schema(const json::value& schema, int depth) {
    constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                           "object", "array",  "null"};
    const auto is_type = [&](const json::value& word) {
        if (!word.is_string()) return false;
        const std::string_view text{word.get_string().data(), word.get_string().size()};
        return std::ranges::find(kTypes, text) != std::end(kTypes);
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
