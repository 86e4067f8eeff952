#pragma once

#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/schema_flat.hpp"

#include <boost/json/value.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace grammar {

/// Adds the JSON texts that are valid under a schema to a grammar.
///
/// Texts have one form: members in the schema's order, at most one space where JSON allows white
/// space (behind brackets, commas and colons, before closing brackets), strings and numbers as
/// StringBody and number_range describe. So what is accepted is part of what the schema allows, and
/// whatever a schema demands holds. docs/structured-output.md lists the keywords.
///
/// One schema document; one thread.
class SchemaWriter {
public:
    /// @param root  the document that references lead into; lives longer, like the grammar
    SchemaWriter(Grammar& grammar, const boost::json::value& root)
        : grammar_{grammar}, flattener_{root} {}

    /// @param schema   a part of the document
    /// @param pointer  where it stands
    /// @return the state behind the value
    /// Throws SchemaError, LimitError.
    [[nodiscard]] Nfa::Id add_value(Nfa& nfa, Nfa::Id from, const boost::json::value& schema,
                                    std::string_view pointer);
    /// Any JSON object.
    [[nodiscard]] Nfa::Id add_any_object(Nfa& nfa, Nfa::Id from);

private:
    using Id = Nfa::Id;
    [[nodiscard]] std::uint32_t rule_of(const FlatSchema& schema);
    [[nodiscard]] std::uint32_t any_rule();
    [[nodiscard]] std::uint32_t object_rule();
    [[nodiscard]] std::uint32_t number_rule();
    void add_flat(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_choice(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_enum(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_string(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_number(Nfa& nfa, Id from, const FlatSchema& schema, bool is_integer, Id to);
    void add_object(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_array(Nfa& nfa, Id from, const FlatSchema& schema, Id to);
    void add_pattern_of(Nfa& nfa, Id from, const FlatSchema& schema, std::string_view keyword,
                        std::string_view pattern, bool is_whole, Id to);
    [[nodiscard]] Id add_other_key(Nfa& nfa, Id from, const boost::json::object& declared);

    Grammar& grammar_;
    SchemaFlattener flattener_;
    std::map<std::string, std::uint32_t, std::less<>> rules_;  // by the text of the flat schema
    std::optional<std::uint32_t> any_rule_, object_rule_, number_rule_;
    int nesting_ = 0;
};

}  // namespace grammar
