#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>

namespace grammar_test {

/// Schemas of supported keywords, at random. `draw(n)` gives a number below n.
template <class Draw>
class RandomSchema {
public:
    explicit RandomSchema(Draw draw) : draw_{draw} {}

    boost::json::value make() {
        boost::json::object root = node(3);
        if (draw_(3) == 0) {  // a level that refers back to the whole
            root = {{"type", "object"},
                    {"properties",
                     {{"value", std::move(root)},
                      {"next", {{"anyOf", {{{"type", "null"}}, {{"$ref", "#"}}}}}}}},
                    {"required", {"value", "next"}},
                    {"additionalProperties", false}};
        }
        return root;
    }

private:
    using Object = boost::json::object;
    using Array = boost::json::array;

    Object node(int depth) {
        switch (draw_(depth > 0 ? 14U : 9U)) {
            case 0:
                return string();
            case 1:
                return integer();
            case 2:
                return number();
            case 3:
                return {{"type", "boolean"}};
            case 4:
                return {{"type", Array{"null", "string"}}};
            case 5:
                return {{"enum", Array{"red", "gr\"een", 3, nullptr, Object{{"a", Array{1, 2}}}}}};
            case 6:
                return {{"const", "so\n\xC3\xA9"}};
            case 7:
                return pattern();
            case 8:
                return {};
            case 9:
            case 10:
                return object(depth);
            case 11:
                return array(depth);
            case 12:
                return {{"anyOf", Array{node(depth - 1), node(depth - 1)}}};
            default:
                return {{"allOf", Array{Object{{"type", "object"}}, object(depth)}}};
        }
    }

    Object string() {
        Object out{{"type", "string"}};
        const std::uint32_t min = draw_(5);
        if (draw_(2) == 0) out["minLength"] = min;
        if (draw_(2) == 0) out["maxLength"] = min + draw_(6);
        return out;
    }
    Object pattern() {
        constexpr const char* kPatterns[] = {"^[a-z]{2,5}$",    "^(foo|ba[rz])+$", "x[0-9]+y",
                                             "^\\d{3}-\\w?$",   "^a|b$",           "^[ -~]{1,4}$",
                                             "^(?:\"q\"|\\\\)$"};
        return {{"type", "string"}, {"pattern", kPatterns[draw_(7)]}};
    }
    std::int64_t bound() { return static_cast<std::int64_t>(draw_(2000)) - 1000; }
    Object integer() {
        Object out{{"type", "integer"}};
        const std::int64_t low = bound();
        if (draw_(2) == 0) out["minimum"] = low;
        if (draw_(2) == 0) out["exclusiveMaximum"] = low + 1 + draw_(500);
        return out;
    }
    Object number() {
        Object out{{"type", "number"}};
        const std::int64_t low = bound();
        if (draw_(2) == 0) out[draw_(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
        if (draw_(2) == 0)
            out[draw_(2) == 0 ? "maximum" : "exclusiveMaximum"] = low + 1 + draw_(20);
        return out;
    }
    Object object(int depth) {
        constexpr const char* kNames[] = {"a",         "ab",           "abc", "b",
                                          "key \"q\"", "\xE2\x82\xAC", "name"};
        Object properties;
        Array required;
        const std::uint32_t n = draw_(5);
        for (std::uint32_t i = 0; i < n; ++i) {
            const char* name = kNames[draw_(7)];
            if (properties.contains(name)) continue;
            properties[name] = node(depth - 1);
            if (draw_(2) == 0) required.emplace_back(name);
        }
        Object out{{"type", "object"}};
        if (!properties.empty() || draw_(2) == 0) out["properties"] = std::move(properties);
        if (!required.empty()) out["required"] = std::move(required);
        switch (draw_(4)) {
            case 0:
                out["additionalProperties"] = false;
                break;
            case 1:
                out["additionalProperties"] = node(depth - 1);
                break;
            default:
                break;
        }
        return out;
    }
    Object array(int depth) {
        Object out{{"type", "array"}, {"items", node(depth - 1)}};
        const std::uint32_t min = draw_(3);
        if (draw_(2) == 0) out["minItems"] = min;
        if (draw_(2) == 0) out["maxItems"] = min + draw_(3);
        if (draw_(4) == 0) out["prefixItems"] = Array{node(depth - 1), node(depth - 1)};
        return out;
    }

    Draw draw_;
};

template <class Draw>
RandomSchema(Draw) -> RandomSchema<Draw>;

}  // namespace grammar_test
