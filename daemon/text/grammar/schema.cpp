#include "daemon/text/grammar/schema.hpp"

#include "daemon/text/grammar/number_range.hpp"
#include "daemon/text/grammar/pattern.hpp"
#include "daemon/text/grammar/schema_error.hpp"
#include "daemon/text/grammar/string_formats.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace grammar {

namespace json = boost::json;

namespace {

constexpr int kMaxNesting = 100;  // of schemas, references followed
constexpr std::size_t kMaxRules = 4096;
constexpr std::size_t kMaxInlineBytes = 256;  // of values listed where they are used

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

/// The types a flat schema is about: its own, or those that its other keywords are about.
std::vector<std::string_view> types_of(const FlatSchema& schema) {
    std::vector<std::string_view> out;
    if (const json::value* type = schema.keywords.if_contains("type")) {
        if (type->is_string()) return {view(type->get_string())};
        for (const json::value& one : type->get_array()) {
            const std::string_view name = view(one.get_string());
            const auto& list = type->get_array();
            if (name == "integer" && std::ranges::find(list, json::value("number")) != list.end())
                continue;  // every integer is a number
            if (std::ranges::find(out, name) == out.end()) out.push_back(name);
        }
        return out;
    }
    struct About {
        std::string_view type;
        std::vector<std::string_view> keywords;
    };
    const About kAbout[] = {
        {"object",
         {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}},
        {"array", {"items", "prefixItems", "minItems", "maxItems"}},
        {"string", {"pattern", "format", "minLength", "maxLength"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}};
    for (const About& about : kAbout)
        if (std::ranges::any_of(about.keywords, [&](std::string_view keyword) {
                return schema.keywords.contains(keyword);
            }))
            out.push_back(about.type);
    return out;
}

bool is_of_type(const json::value& value, std::string_view type) {
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_bool();
    if (type == "null") return value.is_null();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (!value.is_number()) return false;
    return type == "number" || std::floor(value.to_number<double>()) == value.to_number<double>();
}

std::int64_t num_characters(std::string_view text) {
    return std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; });
}

/// Whether one of the listed values is valid under the schema's other keywords.
bool is_allowed(const json::value& value, const FlatSchema& schema) {
    const auto limit = [&](std::string_view keyword, auto holds) {
        const json::value* bound = schema.keywords.if_contains(keyword);
        return bound == nullptr || holds(bound->to_number<double>());
    };
    const auto refuse = [&](std::initializer_list<std::string_view> keywords) {
        for (const std::string_view keyword : keywords)
            if (schema.keywords.contains(keyword))
                throw SchemaError{schema.pointer, keyword,
                                  "beside enum or const it is not supported"};
    };
    const json::value* type = schema.keywords.if_contains("type");
    const auto types = types_of(schema);
    if (type != nullptr &&
        std::ranges::none_of(types, [&](std::string_view t) { return is_of_type(value, t); }))
        return false;
    if (value.is_number()) {
        const double x = value.to_number<double>();
        return limit("minimum", [x](double b) { return x >= b; }) &&
               limit("maximum", [x](double b) { return x <= b; }) &&
               limit("exclusiveMinimum", [x](double b) { return x > b; }) &&
               limit("exclusiveMaximum", [x](double b) { return x < b; });
    }
    if (value.is_string()) {
        refuse({"pattern", "format"});
        const auto n = static_cast<double>(num_characters(view(value.get_string())));
        return limit("minLength", [n](double b) { return n >= b; }) &&
               limit("maxLength", [n](double b) { return n <= b; });
    }
    if (value.is_object())
        refuse(
            {"properties", "required", "additionalProperties", "minProperties", "maxProperties"});
    if (value.is_array()) refuse({"items", "prefixItems", "minItems", "maxItems"});
    return true;
}

}  // namespace

// ---- rules that all schemas share
// ----------------------------------------------------------------

std::uint32_t SchemaWriter::number_rule() {
    if (number_rule_) return *number_rule_;
    number_rule_ = grammar_.add_rule();
    Nfa nfa;
    const Id start = nfa.add();
    const Id end = add_pattern(nfa, start, number_pattern(), {.is_whole = true});
    grammar_.set_body(*number_rule_, nfa, start, end);
    return *number_rule_;
}

std::uint32_t SchemaWriter::object_rule() {
    if (object_rule_) return *object_rule_;
    object_rule_ = grammar_.add_rule();
    const std::uint32_t any = any_rule();
    Nfa nfa;
    const Id start = nfa.add(), end = nfa.add(), open = nfa.space(nfa.text(start, "{")),
             key = nfa.add(), name_end = nfa.add(), value_end = nfa.add();
    nfa.epsilon(open, key);
    nfa.call(nfa.text(key, "\""), {.rule = kStringBody}, name_end);
    nfa.call(nfa.space(nfa.text(name_end, ":")), {.rule = any}, value_end);
    nfa.epsilon(nfa.space(nfa.text(value_end, ",")), key);
    nfa.epsilon(nfa.text(open, "}"), end);
    nfa.epsilon(nfa.text(nfa.space(value_end), "}"), end);
    grammar_.set_body(*object_rule_, nfa, start, end);
    return *object_rule_;
}

std::uint32_t SchemaWriter::any_rule() {
    if (any_rule_) return *any_rule_;
    any_rule_ = grammar_.add_rule();
    const std::uint32_t object = object_rule(), number = number_rule(), array = grammar_.add_rule();
    Nfa items;
    const Id start = items.add(), end = items.add(), open = items.space(items.text(start, "[")),
             item = items.add(), item_end = items.add();
    items.epsilon(open, item);
    items.call(item, {.rule = *any_rule_}, item_end);
    items.epsilon(items.space(items.text(item_end, ",")), item);
    items.epsilon(items.text(open, "]"), end);
    items.epsilon(items.text(items.space(item_end), "]"), end);

    Nfa nfa;
    const Id from = nfa.add(), to = nfa.add();
    for (const std::string_view word : {"true", "false", "null"})
        nfa.epsilon(nfa.text(from, word), to);
    nfa.call(nfa.text(from, "\""), {.rule = kStringBody}, to);
    for (const std::uint32_t rule : {object, array, number}) nfa.call(from, {.rule = rule}, to);
    grammar_.set_body(array, items, start, end);
    grammar_.set_body(*any_rule_, nfa, from, to);
    return *any_rule_;
}

Nfa::Id SchemaWriter::add_any_object(Nfa& nfa, Id from) {
    const Id to = nfa.add();
    nfa.call(from, {.rule = object_rule()}, to);
    return to;
}

// ---- schemas
// -------------------------------------------------------------------------------------

Nfa::Id SchemaWriter::add_value(Nfa& nfa, Id from, const json::value& schema,
                                std::string_view pointer) {
    const Id to = nfa.add();
    const auto flat = flattener_.flatten(schema, pointer);
    if (!flat) return to;  // no value is valid: nothing leads here
    const auto types = types_of(*flat);
    const json::value* listed = flat->keywords.if_contains("enum");
    const bool is_listed = listed != nullptr && json::serialize(*listed).size() <= kMaxInlineBytes;
    const bool is_plain = types.size() == 1 &&
                          (types[0] == "string" || types[0] == "boolean" || types[0] == "null") &&
                          !flat->keywords.contains("pattern") &&
                          !flat->keywords.contains("format") && !flat->keywords.contains("anyOf") &&
                          listed == nullptr;
    if (flat->keywords.empty())
        nfa.call(from, {.rule = any_rule()}, to);
    else if (is_listed || is_plain)
        add_flat(nfa, from, *flat, to);
    else
        nfa.call(from, {.rule = rule_of(*flat)}, to);
    return to;
}

std::uint32_t SchemaWriter::rule_of(const FlatSchema& schema) {
    const auto [at, is_new] = rules_.try_emplace(json::serialize(schema.keywords), 0);
    if (!is_new) return at->second;
    if (rules_.size() > kMaxRules) throw LimitError{"it has too many parts"};
    if (++nesting_ > kMaxNesting) throw LimitError{"it nests too deep"};
    const std::uint32_t rule = at->second = grammar_.add_rule();
    Nfa nfa;
    const Id start = nfa.add(), end = nfa.add();
    add_flat(nfa, start, schema, end);
    grammar_.set_body(rule, nfa, start, end);
    --nesting_;
    return rule;
}

void SchemaWriter::add_flat(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    if (schema.keywords.contains("anyOf")) return add_choice(nfa, from, schema, to);
    if (schema.keywords.contains("enum")) return add_enum(nfa, from, schema, to);
    for (const std::string_view type : types_of(schema)) {
        if (type == "string")
            add_string(nfa, from, schema, to);
        else if (type == "number" || type == "integer")
            add_number(nfa, from, schema, type == "integer", to);
        else if (type == "object")
            add_object(nfa, from, schema, to);
        else if (type == "array")
            add_array(nfa, from, schema, to);
        else if (type == "null")
            nfa.epsilon(nfa.text(from, "null"), to);
        else
            for (const std::string_view word : {"true", "false"})
                nfa.epsilon(nfa.text(from, word), to);
    }
}

void SchemaWriter::add_choice(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    json::object base = schema.keywords;
    base.stable_erase("anyOf");
    std::size_t i = 0;
    for (const json::value& branch : schema.keywords.at("anyOf").get_array()) {
        const std::string at = schema.pointer + "/anyOf/" + std::to_string(i++);
        const Id begin = nfa.add();
        nfa.epsilon(from, begin);
        if (base.empty()) {
            nfa.epsilon(add_value(nfa, begin, branch, at), to);
        } else {
            const json::value joined = json::object{{"allOf", json::array{base, branch}}};
            nfa.epsilon(add_value(nfa, begin, joined, at), to);
        }
    }
}

void SchemaWriter::add_enum(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    for (const json::value& value : schema.keywords.at("enum").get_array())
        if (is_allowed(value, schema)) nfa.epsilon(nfa.text(from, json::serialize(value)), to);
}

void SchemaWriter::add_pattern_of(Nfa& nfa, Id from, const FlatSchema& schema,
                                  std::string_view keyword, std::string_view pattern, bool is_whole,
                                  Id to) {
    try {
        const Id end = add_pattern(nfa, nfa.text(from, "\""), pattern,
                                   {.spelling = Spelling::json_string, .is_whole = is_whole});
        nfa.epsilon(nfa.text(end, "\""), to);
    } catch (const PatternError& error) {
        throw SchemaError{schema.pointer, keyword, std::string{"not supported: "} + error.what()};
    }
}

void SchemaWriter::add_string(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    const json::value* pattern = schema.keywords.if_contains("pattern");
    const json::value* format = schema.keywords.if_contains("format");
    const auto min = schema.count("minLength"), max = schema.count("maxLength");
    if (pattern != nullptr || format != nullptr) {
        const std::string_view keyword = pattern != nullptr ? "pattern" : "format";
        if (pattern != nullptr && format != nullptr)
            throw SchemaError{schema.pointer, "format", "beside pattern it is not supported"};
        if (min || max)
            throw SchemaError{schema.pointer, min ? "minLength" : "maxLength",
                              "beside " + std::string{keyword} + " it is not supported"};
    }
    if (pattern != nullptr)
        return add_pattern_of(nfa, from, schema, "pattern", view(pattern->get_string()), false, to);
    if (format != nullptr) {
        const std::string_view name = view(format->get_string());
        const auto known = find_format(name);
        if (!known)
            throw SchemaError{schema.pointer, "format",
                              "\"" + std::string{name} + "\" is not supported"};
        return add_pattern_of(nfa, from, schema, "format", *known, true, to);
    }
    if (max && *max < min.value_or(0)) return;
    nfa.call(nfa.text(from, "\""),
             {.rule = kStringBody,
              .min_chars = static_cast<std::uint32_t>(min.value_or(0)),
              .max_chars = max ? static_cast<std::uint32_t>(*max) : kUnbounded},
             to);
}

void SchemaWriter::add_number(Nfa& nfa, Id from, const FlatSchema& schema, bool is_integer, Id to) {
    struct Bound {
        std::optional<std::int64_t> at;
        bool is_exclusive = false;
    };
    const auto read = [&](std::string_view inclusive, std::string_view exclusive, bool is_min) {
        Bound out;
        for (const std::string_view keyword : {inclusive, exclusive}) {
            const json::value* value = schema.keywords.if_contains(keyword);
            if (value == nullptr) continue;
            const double bound = value->to_number<double>();
            constexpr double kHuge = 1e18;
            if (std::abs(bound) >= kHuge) {
                if ((bound < 0) == is_min) continue;  // beyond what is written anyway
                throw SchemaError{schema.pointer, keyword, "the bound is too large"};
            }
            const bool is_whole = std::floor(bound) == bound;
            if (!is_whole && !is_integer)
                throw SchemaError{schema.pointer, keyword,
                                  "a bound of numbers that is no integer is not supported"};
            const bool excludes = keyword == exclusive && is_whole;
            const auto at =
                static_cast<std::int64_t>(is_min ? std::ceil(bound) : std::floor(bound));
            const bool is_tighter =
                !out.at || (is_min ? at > *out.at : at < *out.at) || (at == *out.at && excludes);
            if (is_tighter) out = {at, excludes};
        }
        return out;
    };
    Bound min = read("minimum", "exclusiveMinimum", true);
    Bound max = read("maximum", "exclusiveMaximum", false);
    if (!is_integer && !min.at && !max.at) return nfa.call(from, {.rule = number_rule()}, to);
    std::string pattern;
    if (is_integer) {
        if (min.at && min.is_exclusive) ++*min.at;
        if (max.at && max.is_exclusive) --*max.at;
        pattern = integer_pattern(min.at, max.at);
    } else {
        pattern = decimal_pattern(min.at, min.is_exclusive, max.at, max.is_exclusive);
    }
    if (!pattern.empty()) nfa.epsilon(add_pattern(nfa, from, pattern, {.is_whole = true}), to);
}

}  // namespace grammar
