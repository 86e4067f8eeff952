// Objects and arrays: what has members and items.

#include "daemon/text/grammar/schema.hpp"
#include "daemon/text/grammar/schema_error.hpp"
#include "daemon/text/utf8.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <set>
#include <vector>

namespace grammar {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxCountedItems = 2000;

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

}  // namespace

Nfa::Id SchemaWriter::add_other_key(Nfa& nfa, Id from, const json::object& declared) {
    // The declared names as a tree of characters; whatever leaves it is another name. Names that
    // need escapes are never met: other keys are written without.
    struct Node {
        std::map<char32_t, std::size_t> next;
        bool is_name = false;
    };
    std::vector<Node> nodes(1);
    for (const auto& member : declared) {
        std::size_t at = 0;
        std::string_view rest{member.key()};
        while (!rest.empty()) {
            const auto c = text::first_character(rest);
            rest.remove_prefix(c.bytes);
            const auto [known, is_new] = nodes[at].next.try_emplace(c.code_point, nodes.size());
            at = known->second;
            if (is_new) nodes.emplace_back();
        }
        nodes[at].is_name = true;
    }
    const Id end = nfa.add(), other = nfa.add();
    const auto add_characters = [&](Id state, const std::map<char32_t, std::size_t>& without) {
        std::set<char32_t> holes{'"', '\\'};
        for (const auto& [c, node] : without) holes.insert(c);
        char32_t next = 0x20;
        for (const char32_t hole : holes) {
            if (hole > next) nfa.characters(state, next, hole - 1, other);
            next = std::max<char32_t>(next, hole + 1);
        }
        nfa.characters(state, next, 0x10FFFF, other);
    };
    std::vector<Id> states;
    for (std::size_t i = 0; i < nodes.size(); ++i) states.push_back(nfa.add());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        add_characters(states[i], nodes[i].next);
        for (const auto& [c, node] : nodes[i].next)
            if (c >= 0x20 && c != '"' && c != '\\') nfa.characters(states[i], c, c, states[node]);
        if (!nodes[i].is_name) nfa.epsilon(nfa.text(states[i], "\""), end);
    }
    add_characters(other, {});
    nfa.epsilon(nfa.text(other, "\""), end);
    nfa.epsilon(nfa.text(from, "\""), states[0]);
    return end;
}

void SchemaWriter::add_object(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    json::object properties;
    if (const json::value* given = schema.keywords.if_contains("properties"))
        properties = given->get_object();
    const json::value* additional = schema.keywords.if_contains("additionalProperties");
    const json::value any = true, none = false;
    // Undeclared members are left out where some are declared; without any, all are welcome.
    const json::value& others =
        additional != nullptr ? *additional : (properties.empty() ? any : none);
    std::set<std::string_view> required;
    if (const json::value* names = schema.keywords.if_contains("required"))
        for (const json::value& name : names->get_array()) {
            required.insert(view(name.get_string()));
            if (!properties.contains(view(name.get_string())))
                properties[name.get_string()] = additional != nullptr ? *additional : any;
        }
    const auto num_required = static_cast<std::int64_t>(required.size());
    if (schema.count("minProperties").value_or(0) > num_required)
        throw SchemaError{schema.pointer, "minProperties",
                          "more than are required is not supported"};
    const auto most = schema.count("maxProperties");
    if (most && (others != none || *most < static_cast<std::int64_t>(properties.size())))
        throw SchemaError{schema.pointer, "maxProperties",
                          "fewer than are declared, or beside others, is not supported"};
    if (properties.empty() && others == any) return nfa.call(from, {.rule = object_rule()}, to);

    // before[i]: a key is due, of member i or one behind it; after[i]: member i - 1 has been
    // written.
    const std::size_t n = properties.size();
    std::vector<Id> before(n + 1), after(n + 1);
    for (std::size_t i = 0; i <= n; ++i) before[i] = nfa.add(), after[i] = nfa.add();
    const auto is_required = [&](std::size_t i) {
        return required.contains(
            std::string_view{(properties.begin() + static_cast<std::ptrdiff_t>(i))->key()});
    };
    bool may_end = true;  // no member from i on is required
    for (std::size_t i = n + 1; i-- > 0;) {
        if (i < n) {
            const auto& member = *(properties.begin() + static_cast<std::ptrdiff_t>(i));
            const std::string at =
                member_pointer(member_pointer(schema.pointer, "properties"), member.key());
            const Id key_end =
                nfa.text(before[i], json::serialize(json::string{member.key()}) + ":");
            nfa.epsilon(add_value(nfa, nfa.space(key_end), member.value(), at), after[i + 1]);
            if (!is_required(i)) nfa.epsilon(before[i], before[i + 1]);
            may_end &= !is_required(i);
        } else if (others != none) {
            const Id key_end = nfa.text(add_other_key(nfa, before[n], properties), ":");
            const std::string at = member_pointer(schema.pointer, "additionalProperties");
            nfa.epsilon(add_value(nfa, nfa.space(key_end), others, at), after[n]);
        }
        nfa.epsilon(nfa.space(nfa.text(after[i], ",")), before[i]);
        if (may_end) nfa.epsilon(nfa.text(nfa.space(after[i]), "}"), to);
    }
    const Id open = nfa.space(nfa.text(from, "{"));
    nfa.epsilon(open, before[0]);
    if (may_end) nfa.epsilon(nfa.text(open, "}"), to);
}

void SchemaWriter::add_array(Nfa& nfa, Id from, const FlatSchema& schema, Id to) {
    const json::value any = true, none = false;
    const json::value* given = schema.keywords.if_contains("items");
    json::array first;
    if (const json::value* prefix = schema.keywords.if_contains("prefixItems"))
        first = prefix->get_array();
    const auto num_first = static_cast<std::int64_t>(first.size());
    const std::int64_t min = schema.count("minItems").value_or(0);
    std::optional<std::int64_t> max = schema.count("maxItems");
    const json::value& rest = given != nullptr ? *given : any;
    if (rest == none) max = std::min(max.value_or(num_first), num_first);
    // As with members: where some are declared and the rest is not, there is no more than is due.
    if (given == nullptr && num_first > 0)
        max = std::min(max.value_or(INT64_MAX), std::max(num_first, min));
    if (max && *max < min) return;
    const std::int64_t counted = max ? *max : std::max(min, num_first);
    if (counted > kMaxCountedItems)
        throw SchemaError{schema.pointer, max ? "maxItems" : "minItems",
                          "more than 2000 is not supported"};

    Id before = nfa.add();
    const Id open = nfa.space(nfa.text(from, "["));
    nfa.epsilon(open, before);
    if (min == 0) nfa.epsilon(nfa.text(open, "]"), to);
    const std::string items_at = member_pointer(schema.pointer, "items");
    for (std::int64_t i = 0; i < counted; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const Id after = i < num_first
                             ? add_value(nfa, before, first[index],
                                         schema.pointer + "/prefixItems/" + std::to_string(i))
                             : add_value(nfa, before, rest, items_at);
        if (i + 1 >= min) nfa.epsilon(nfa.text(nfa.space(after), "]"), to);
        before = nfa.space(nfa.text(after, ","));
    }
    if (max) return;
    const Id loop = nfa.add();
    nfa.epsilon(before, loop);
    const Id after = add_value(nfa, loop, rest, items_at);
    nfa.epsilon(nfa.text(nfa.space(after), "]"), to);
    nfa.epsilon(nfa.space(nfa.text(after, ",")), loop);
}

}  // namespace grammar
