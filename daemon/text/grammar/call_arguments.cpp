#include "daemon/text/grammar/call_arguments.hpp"

#include "daemon/text/grammar/free_text.hpp"
#include "daemon/text/grammar/pattern.hpp"
#include "daemon/text/grammar/schema.hpp"
#include "daemon/text/grammar/schema_error.hpp"
#include "daemon/text/grammar/state_masks.hpp"
#include "daemon/text/grammar/string_formats.hpp"

#include <boost/json.hpp>

#include <optional>
#include <set>

namespace grammar {

namespace json = boost::json;

namespace {

using Id = Nfa::Id;

constexpr std::size_t kMaxSchemaBytes = 256U << 10U;

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

/// Arguments are an object, whatever the schema says.
Id add_object(SchemaWriter& writer, Grammar& grammar, Nfa& nfa, Id from,
              const json::value& schema) {
    const std::uint32_t rule = grammar.add_rule();
    Nfa body;
    const Id start = body.add();
    const json::value object =
        json::object{{"allOf", json::array{schema, json::object{{"type", "object"}}}}};
    grammar.set_body(rule, body, start, writer.add_value(body, start, object, ""));
    const Id to = nfa.add();
    nfa.call(from, {.rule = rule}, to);
    return to;
}

/// A string as it is, and the mark behind it.
Id add_raw_string(Nfa& nfa, Id from, const FlatSchema& schema, const CallSyntax::Tagged& tags) {
    const auto& keywords = schema.keywords;
    const Id to = nfa.add();
    const auto close = [&](Id at) { return nfa.text(nfa.text(at, tags.before_close), tags.close); };
    if (const json::value* listed = keywords.if_contains("enum")) {
        for (const json::value& value : listed->get_array()) {
            if (!value.is_string() ||
                view(value.get_string()).find(tags.close) != std::string_view::npos)
                throw SchemaError{schema.pointer, "enum",
                                  "a value that this model's calls cannot say"};
            nfa.epsilon(close(nfa.text(from, view(value.get_string()))), to);
        }
        return to;
    }
    std::optional<std::string> pattern;
    const bool has_pattern = keywords.contains("pattern");
    if (const json::value* format = keywords.if_contains("format");
        format != nullptr && !has_pattern) {
        const auto known = find_format(view(format->get_string()));
        if (!known) throw SchemaError{schema.pointer, "format", "it is not supported"};
        pattern = *known;
    }
    if (has_pattern)
        throw SchemaError{schema.pointer, "pattern", "it is not supported in calls of this model"};
    const auto min = schema.count("minLength"), max = schema.count("maxLength");
    if (min || max) {
        if (pattern)
            throw SchemaError{schema.pointer, "format", "beside a length it is not supported"};
        pattern = "[^<]{" + std::to_string(min.value_or(0)) + "," +
                  (max ? std::to_string(*max) : std::string{}) + "}";
    }
    if (pattern) {
        nfa.epsilon(close(add_pattern(nfa, from, *pattern, {.is_whole = true})), to);
        return to;
    }
    const std::string marks[] = {std::string{tags.close}};
    const FreeText text = add_free_text(nfa, marks);
    nfa.epsilon(from, text.start);
    nfa.epsilon(text.behind[0], to);
    return to;
}

Id add_tagged(SchemaWriter& writer, Grammar& grammar, Nfa& nfa, Id from, const json::value& schema,
              const CallSyntax::Tagged& tags) {
    const auto flat = SchemaFlattener{schema}.flatten(schema, "");
    Id at = from;
    const Id dead = nfa.add();
    if (!flat) return dead;
    for (const auto& [keyword, value] : flat->keywords)
        if (keyword != "type" && keyword != "properties" && keyword != "required" &&
            keyword != "additionalProperties")
            throw SchemaError{"", keyword, "it is not supported in calls of this model"};
    const json::value* properties = flat->keywords.if_contains("properties");
    const json::value* additional = flat->keywords.if_contains("additionalProperties");
    const json::value* names = flat->keywords.if_contains("required");
    const json::object none;
    const json::object& declared = properties != nullptr ? properties->get_object() : none;
    if (declared.empty() && (additional == nullptr || *additional != json::value(false)))
        throw SchemaError{"", "properties",
                          "calls of this model need parameters that are declared"};
    std::set<std::string_view> required;
    if (names != nullptr)
        for (const json::value& name : names->get_array()) required.insert(view(name.get_string()));
    for (const std::string_view name : required)
        if (!declared.contains(name))
            throw SchemaError{"", "required",
                              "calls of this model need parameters that are declared"};
    for (const std::string_view text :
         {tags.before_key, tags.before_value, tags.before_string, tags.close})
        grammar.add_mark(text);
    for (const auto& [key, property] : declared) {
        const std::string pointer = member_pointer("/properties", key);
        const Id next = nfa.add();
        if (!required.contains(key)) nfa.epsilon(at, next);
        const Id key_end = nfa.text(nfa.text(at, tags.before_key), key);
        // Whoever reads the call back takes the value as text only where this says so.
        const json::value* type =
            property.is_object() ? property.get_object().if_contains("type") : nullptr;
        const bool is_raw = type != nullptr && *type == "string";
        if (is_raw) {
            const Id begin = nfa.text(
                key_end, tags.before_string.empty() ? tags.before_value : tags.before_string);
            const auto inner = SchemaFlattener{schema}.flatten(property, pointer);
            if (inner)
                nfa.epsilon(nfa.text(add_raw_string(nfa, begin, *inner, tags), tags.after_close),
                            next);
        } else {
            const std::uint32_t rule = grammar.add_rule();
            Nfa body;
            const Id start = body.add();
            grammar.set_body(rule, body, start, writer.add_value(body, start, property, pointer));
            const Id value_end = nfa.add();
            nfa.call(nfa.text(key_end, tags.before_value), {.rule = rule}, value_end);
            const Id closed = nfa.text(nfa.text(value_end, tags.before_close), tags.close);
            nfa.epsilon(nfa.text(closed, tags.after_close), next);
        }
        at = next;
    }
    return at;
}

/// Up to the end of the call, as far as one can tell: the reader of the reply has the last word.
Id add_any_tagged(Grammar& grammar, Nfa& nfa, Id from, const CallSyntax::Tagged& tags) {
    const Id to = nfa.add();
    const std::string marks[] = {std::string{tags.close}};
    const FreeText values = add_free_text(nfa, marks);
    nfa.epsilon(from, to);
    grammar.add_mark(tags.before_key);
    grammar.add_mark(tags.close);
    nfa.epsilon(nfa.text(to, tags.before_key), values.start);
    nfa.epsilon(nfa.text(values.behind[0], tags.after_close), to);
    return to;
}

/// Arguments that are valid under the tool's schema.
Id add_valid(Grammar& grammar, Nfa& nfa, Id from, const base::CallableTool& tool,
             const CallSyntax& syntax) {
    const json::value schema = parse_schema(tool.parameters);
    SchemaWriter writer{grammar, schema};
    return syntax.tagged != nullptr ? add_tagged(writer, grammar, nfa, from, schema, *syntax.tagged)
                                    : add_object(writer, grammar, nfa, from, schema);
}

bool can_enforce(const base::CallableTool& tool, const CallSyntax& syntax,
                 const TokenTable& tokens) {
    try {
        Grammar trial;
        (void)trial.add_rule();
        Nfa nfa;
        nfa.set_outer(true);
        const Id start = nfa.add();
        trial.set_body(0, nfa, start, add_valid(trial, nfa, start, tool, syntax));
        if (!trial.finish()) return false;
        (void)StateMasks{trial, tokens};
        return true;
    } catch (const std::runtime_error&) {  // SchemaError, PatternError, LimitError
        return false;
    }
}

}  // namespace

json::value parse_schema(const std::string& text) {
    if (text.size() > kMaxSchemaBytes) throw LimitError{"it is longer than 256 KiB"};
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 128;
    json::value value = json::parse(text, error, {}, options);
    if (error) throw SchemaError{"", "", "it is no valid JSON: " + error.message()};
    return value;
}

Nfa::Id add_arguments(Grammar& grammar, Nfa& nfa, Nfa::Id from, const base::CallableTool& tool,
                      const CallSyntax& syntax, const TokenTable& tokens) {
    if (tool.strict || can_enforce(tool, syntax, tokens))
        return add_valid(grammar, nfa, from, tool, syntax);
    if (syntax.tagged != nullptr) return add_any_tagged(grammar, nfa, from, *syntax.tagged);
    const json::value any;
    return SchemaWriter{grammar, any}.add_any_object(nfa, from);
}

}  // namespace grammar
