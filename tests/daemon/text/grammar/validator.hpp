#pragma once

#include <boost/json.hpp>

#include <cmath>
#include <regex>
#include <string>
#include <string_view>

namespace grammar_test {

/// Whether a value is valid under a JSON schema (2020-12), for the keywords that are enforced.
/// Shares no code with what it judges; patterns are judged by std::regex, so for ASCII only.
class Validator {
public:
    explicit Validator(const boost::json::value& root) : root_{root} {}

    [[nodiscard]] bool is_valid(const boost::json::value& v) const { return check(v, root_); }

private:
    using Value = boost::json::value;
    using Object = boost::json::object;

    static std::size_t length(const Value& v) {
        std::size_t n = 0;
        for (const char c : v.get_string()) n += (c & 0xC0) != 0x80;
        return n;
    }
    static bool has_type(const Value& v, const Value& type) {
        const std::string_view name{type.get_string().data(), type.get_string().size()};
        if (name == "null") return v.is_null();
        if (name == "boolean") return v.is_bool();
        if (name == "string") return v.is_string();
        if (name == "array") return v.is_array();
        if (name == "object") return v.is_object();
        if (!v.is_number()) return false;
        return name == "number" || std::floor(v.to_number<double>()) == v.to_number<double>();
    }
    static bool same(const Value& a, const Value& b) {
        if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
        return a == b;
    }

    [[nodiscard]] bool check(const Value& v, const Value& schema) const {
        if (schema.is_bool()) return schema.get_bool();
        const Object& s = schema.get_object();
        const auto at = [&](const char* key) { return s.if_contains(key); };
        const auto number = [&](const char* key, double missing) {
            const Value* n = at(key);
            return n != nullptr ? n->to_number<double>() : missing;
        };
        if (const Value* ref = at("$ref")) {
            const std::string pointer = std::string{ref->get_string()}.substr(1);
            if (!check(v, root_.at_pointer(pointer))) return false;
        }
        if (const Value* type = at("type")) {
            bool is_one = false;
            if (type->is_array())
                for (const Value& one : type->get_array()) is_one |= has_type(v, one);
            else
                is_one = has_type(v, *type);
            if (!is_one) return false;
        }
        if (const Value* listed = at("enum")) {
            bool is_one = false;
            for (const Value& one : listed->get_array()) is_one |= same(v, one);
            if (!is_one) return false;
        }
        if (const Value* one = at("const"); one != nullptr && !same(v, *one)) return false;
        if (const Value* all = at("allOf"))
            for (const Value& one : all->get_array())
                if (!check(v, one)) return false;
        if (const Value* any = at("anyOf")) {
            bool is_one = false;
            for (const Value& one : any->get_array()) is_one |= check(v, one);
            if (!is_one) return false;
        }
        if (v.is_number()) {
            const double x = v.to_number<double>();
            if (x < number("minimum", -INFINITY) || x > number("maximum", INFINITY) ||
                x <= number("exclusiveMinimum", -INFINITY) ||
                x >= number("exclusiveMaximum", INFINITY))
                return false;
        }
        if (v.is_string()) {
            const auto n = static_cast<double>(length(v));
            if (n < number("minLength", 0) || n > number("maxLength", INFINITY)) return false;
            if (const Value* pattern = at("pattern"))
                if (!std::regex_search(std::string{v.get_string()},
                                       std::regex{std::string{pattern->get_string()}}))
                    return false;
        }
        if (v.is_array()) return check_items(v.get_array(), s);
        return !v.is_object() || check_members(v.get_object(), s);
    }

    [[nodiscard]] bool check_items(const boost::json::array& items, const Object& s) const {
        const auto n = static_cast<double>(items.size());
        if (const Value* min = s.if_contains("minItems");
            min != nullptr && n < min->to_number<double>())
            return false;
        if (const Value* max = s.if_contains("maxItems");
            max != nullptr && n > max->to_number<double>())
            return false;
        const Value* first = s.if_contains("prefixItems");
        const std::size_t num_first = first != nullptr ? first->get_array().size() : 0;
        for (std::size_t i = 0; i < items.size(); ++i) {
            const Value* schema = i < num_first ? &first->get_array()[i] : s.if_contains("items");
            if (schema != nullptr && !check(items[i], *schema)) return false;
        }
        return true;
    }

    [[nodiscard]] bool check_members(const Object& object, const Object& s) const {
        const Value* properties = s.if_contains("properties");
        const Value* additional = s.if_contains("additionalProperties");
        if (const Value* required = s.if_contains("required"))
            for (const Value& name : required->get_array())
                if (!object.contains(name.get_string())) return false;
        for (const auto& [name, value] : object) {
            const Value* schema =
                properties != nullptr ? properties->get_object().if_contains(name) : nullptr;
            if (schema == nullptr) schema = additional;
            if (schema != nullptr && !check(value, *schema)) return false;
        }
        return true;
    }

    const Value& root_;
};

}  // namespace grammar_test
