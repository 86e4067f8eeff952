#include "daemon/text/grammar/schema_flat.hpp"

#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/schema_error.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <iterator>

namespace grammar {

namespace json = boost::json;

namespace {

constexpr int kMaxJoins = 64;  // references and parts of allOf behind each other

constexpr std::size_t kMaxCopied = 2'000'000;

std::size_t num_values(const json::value& value) {
    std::size_t out = 1;
    if (value.is_array())
        for (const json::value& item : value.get_array()) out += num_values(item);
    if (value.is_object())
        for (const auto& member : value.get_object()) out += num_values(member.value());
    return out;
}

constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "example",
                                             "examples",
                                             "$schema",
                                             "$id",
                                             "id",
                                             "$comment",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$defs",
                                             "definitions",
                                             "contentEncoding",
                                             "contentMediaType",
                                             "discriminator",
                                             "propertyOrdering",
                                             "$anchor"};

/// How two values of a keyword become one that says both; nothing: they exclude each other.
using Join = std::optional<json::value> (*)(const json::value& a, const json::value& b);

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

json::array as_list(const json::value& value) {
    return value.is_array() ? value.get_array() : json::array{value};
}

bool contains(const json::array& list, const json::value& value) {
    return std::ranges::find(list, value) != list.end();
}

std::optional<json::value> join_types(const json::value& a, const json::value& b) {
    json::array out;
    const json::array as = as_list(a), bs = as_list(b);
    for (const json::value& type : as) {
        if (contains(bs, type) || (type == "integer" && contains(bs, "number")))
            out.push_back(type);
        else if (type == "number" && contains(bs, "integer"))
            out.emplace_back("integer");
    }
    if (out.empty()) return std::nullopt;
    return out;
}

std::optional<json::value> join_enums(const json::value& a, const json::value& b) {
    json::array out;
    for (const json::value& value : a.get_array())
        if (contains(b.get_array(), value)) out.push_back(value);
    if (out.empty()) return std::nullopt;
    return out;
}

std::optional<json::value> join_required(const json::value& a, const json::value& b) {
    json::array out = a.get_array();
    for (const json::value& name : b.get_array())
        if (!contains(out, name)) out.push_back(name);
    return out;
}

double number(const json::value& value) {
    return value.to_number<double>();
}

std::optional<json::value> larger(const json::value& a, const json::value& b) {
    return number(a) < number(b) ? b : a;
}
std::optional<json::value> smaller(const json::value& a, const json::value& b) {
    return number(a) < number(b) ? a : b;
}

json::value both(const json::value& a, const json::value& b) {
    if (a == b || b == json::value(true)) return a;
    if (a == json::value(true)) return b;
    return json::object{{"allOf", json::array{a, b}}};
}
std::optional<json::value> join_schemas(const json::value& a, const json::value& b) {
    return both(a, b);
}

// ---- keywords
// ------------------------------------------------------------------------------------

using Check = bool (*)(const json::value&);
bool is_schema(const json::value& v) {
    return v.is_object() || v.is_bool();
}
bool is_schema_list(const json::value& v) {
    return v.is_array() && !v.get_array().empty() && std::ranges::all_of(v.get_array(), is_schema);
}
bool is_schema_map(const json::value& v) {
    return v.is_object() && std::ranges::all_of(v.get_object(), [](const auto& member) {
               return is_schema(member.value());
           });
}
bool is_count(const json::value& v) {
    return v.is_number() && number(v) >= 0 && number(v) <= 1e9 &&
           number(v) == static_cast<double>(static_cast<std::int64_t>(number(v)));
}
bool is_number(const json::value& v) {
    return v.is_number();
}
bool is_string(const json::value& v) {
    return v.is_string();
}
bool is_list(const json::value& v) {
    return v.is_array() && !v.get_array().empty();
}
bool is_name_list(const json::value& v) {
    return v.is_array() && std::ranges::all_of(v.get_array(), is_string);
}
bool is_type(const json::value& v) {
    constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                           "object", "array",  "null"};
    const json::array list = as_list(v);
    return !list.empty() && std::ranges::all_of(list, [&](const json::value& t) {
        return t.is_string() && std::ranges::find(kTypes, view(t.get_string())) != std::end(kTypes);
    });
}

struct Keyword {
    std::string_view name;
    Check is_well_formed;
    std::string_view wanted;
    Join join;  ///< null: two different ones are not supported
};
constexpr Keyword kKeywords[] = {
    {"type", is_type, "the name of a type, or a list of them", join_types},
    {"enum", is_list, "a list of values", join_enums},
    {"properties", is_schema_map, "an object of schemas", nullptr},
    {"required", is_name_list, "a list of names", join_required},
    {"additionalProperties", is_schema, "a schema", join_schemas},
    {"minProperties", is_count, "a count", larger},
    {"maxProperties", is_count, "a count", smaller},
    {"items", is_schema, "a schema", join_schemas},
    {"prefixItems", is_schema_list, "a list of schemas", nullptr},
    {"minItems", is_count, "a count", larger},
    {"maxItems", is_count, "a count", smaller},
    {"minLength", is_count, "a count", larger},
    {"maxLength", is_count, "a count", smaller},
    {"pattern", is_string, "a pattern", nullptr},
    {"format", is_string, "the name of a format", nullptr},
    {"minimum", is_number, "a number", larger},
    {"maximum", is_number, "a number", smaller},
    {"exclusiveMinimum", is_number, "a number", larger},
    {"exclusiveMaximum", is_number, "a number", smaller},
    {"anyOf", is_schema_list, "a list of schemas", nullptr},
};

const json::object& properties_of(const json::object& schema) {
    static const json::object none;
    const json::value* properties = schema.if_contains("properties");
    return properties != nullptr ? properties->get_object() : none;
}

/// Members of two objects that must both be valid: what only one of them declares is an additional
/// property to the other.
void join_properties(json::object& a, const json::object& b) {
    const auto additional = [](const json::object& schema) {
        const json::value* value = schema.if_contains("additionalProperties");
        return value != nullptr ? *value : json::value(true);
    };
    const json::object &of_a = properties_of(a), &of_b = properties_of(b);
    if (of_a.empty() && of_b.empty()) return;
    json::object out;
    for (const auto& [name, schema] : of_a) {
        const json::value* other = of_b.if_contains(name);
        out[name] = both(schema, other != nullptr ? *other : additional(b));
    }
    for (const auto& [name, schema] : of_b)
        if (!of_a.contains(name)) out[name] = both(schema, additional(a));
    a["properties"] = std::move(out);
}

/// Makes one keyword say what another value of it says too.
bool narrow(json::object& schema, std::string_view keyword, const json::value& more, Join join) {
    json::value* known = schema.if_contains(keyword);
    if (known == nullptr) {
        schema[keyword] = more;
        return true;
    }
    auto joined = join(*known, more);
    if (joined) *known = std::move(*joined);
    return joined.has_value();
}

/// @return false when the two exclude each other
bool join(json::object& out, const json::object& more, const std::string& pointer) {
    join_properties(out, more);
    for (const auto& [name, value] : more) {
        if (name == "properties") continue;
        json::value* known = out.if_contains(name);
        if (known == nullptr) {
            out[name] = value;
            continue;
        }
        if (*known == value) continue;
        const auto* keyword = std::ranges::find(kKeywords, std::string_view{name}, &Keyword::name);
        if (keyword->join == nullptr)
            throw SchemaError{pointer, name,
                              "two of them that must hold together are not supported"};
        if (!narrow(out, name, value, keyword->join)) return false;
    }
    return true;
}

}  // namespace

std::optional<std::int64_t> FlatSchema::count(std::string_view keyword) const {
    const json::value* value = keywords.if_contains(keyword);
    if (value == nullptr) return std::nullopt;
    return static_cast<std::int64_t>(value->to_number<double>());
}

std::string member_pointer(std::string_view pointer, std::string_view name) {
    std::string out{pointer};
    out += '/';
    for (const char c : name) {
        if (c == '~')
            out += "~0";
        else if (c == '/')
            out += "~1";
        else
            out += c;
    }
    return out;
}

const json::value& SchemaFlattener::resolve(std::string_view reference,
                                            const std::string& pointer) const {
    if (!reference.starts_with('#'))
        throw SchemaError{pointer, "$ref", "only references into the schema itself are supported"};
    boost::system::error_code error;
    const json::value* found = root_.find_pointer(reference.substr(1), error);
    if (found == nullptr || error || !is_schema(*found))
        throw SchemaError{pointer, "$ref", "it leads to no schema"};
    return *found;
}

bool SchemaFlattener::flatten_into(const json::value& schema, const std::string& pointer,
                                   json::object& out, int depth) {
    num_copied_ += num_values(schema);
    if (num_copied_ > kMaxCopied) throw LimitError{"its references say too much"};
    if (depth > kMaxJoins) throw SchemaError{pointer, "", "references lead in circles, or too far"};
    if (schema.is_bool()) return schema.get_bool();
    if (!schema.is_object()) throw SchemaError{pointer, "", "a schema must be an object"};
    json::object own;
    for (const auto& [key, value] : schema.get_object()) {
        const std::string_view name{key};
        if (std::ranges::find(kAnnotations, name) != std::end(kAnnotations)) continue;
        if (name == "$ref" || name == "allOf") continue;
        if (name == "const") {
            if (!narrow(own, "enum", json::array{value}, join_enums)) return false;
            continue;
        }
        if (name == "multipleOf" && value == json::value(1)) {  // says something of numbers only
            const json::array whole{"integer", "string", "boolean", "object", "array", "null"};
            if (!narrow(own, "type", whole, join_types)) return false;
            continue;
        }
        if (name == "uniqueItems" && value == json::value(false)) continue;
        const std::string_view meant = name == "oneOf" ? "anyOf" : name;
        const auto* keyword = std::ranges::find(kKeywords, meant, &Keyword::name);
        if (keyword == std::end(kKeywords))
            throw SchemaError{pointer, name, "the keyword is not supported"};
        if (!keyword->is_well_formed(value))
            throw SchemaError{pointer, name, "it must be " + std::string{keyword->wanted}};
        if (!own.contains(meant)) {
            own[meant] = value;
        } else if (keyword->join == nullptr) {
            throw SchemaError{pointer, name, "anyOf beside oneOf is not supported"};
        } else if (!narrow(own, meant, value, keyword->join)) {
            return false;
        }
    }
    if (!join(out, own, pointer)) return false;
    const json::object& object = schema.get_object();
    if (const json::value* reference = object.if_contains("$ref")) {
        if (!reference->is_string()) throw SchemaError{pointer, "$ref", "it must be a string"};
        const std::string_view to = view(reference->get_string());
        const json::value& target = resolve(to, pointer);
        if (!flatten_into(target, std::string{to.substr(1)}, out, depth + 1)) return false;
    }
    if (const json::value* parts = object.if_contains("allOf")) {
        if (!is_schema_list(*parts))
            throw SchemaError{pointer, "allOf", "it must be a list of schemas"};
        std::size_t i = 0;
        for (const json::value& part : parts->get_array()) {
            const std::string at = member_pointer(pointer, "allOf") + "/" + std::to_string(i++);
            if (!flatten_into(part, at, out, depth + 1)) return false;
        }
    }
    return true;
}

std::optional<FlatSchema> SchemaFlattener::flatten(const json::value& schema,
                                                   std::string_view pointer) {
    FlatSchema out{{}, std::string{pointer}};
    // Where a reference is all there is, what it leads to is what messages should name.
    const json::value* at = &schema;
    for (int i = 0; i < kMaxJoins && at->is_object() && at->get_object().size() == 1; ++i) {
        const json::value* reference = at->get_object().if_contains("$ref");
        if (reference == nullptr || !reference->is_string()) break;
        at = &resolve(view(reference->get_string()), out.pointer);
        out.pointer = std::string{view(reference->get_string()).substr(1)};
    }
    if (!flatten_into(*at, out.pointer, out.keywords, 0)) return std::nullopt;
    return out;
}

}  // namespace grammar
