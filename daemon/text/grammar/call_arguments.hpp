#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/call_syntax.hpp"
#include "daemon/text/grammar/token_table.hpp"

#include <boost/json/value.hpp>

#include <string>

namespace grammar {

/// Adds the arguments of a call, as a family of models writes them. Those of a strict tool are
/// valid under its schema; of another as far as that can be enforced, and else they are any at all.
/// @return the state behind them
/// Throws SchemaError, LimitError.
[[nodiscard]] Nfa::Id add_arguments(Grammar& grammar, Nfa& nfa, Nfa::Id from,
                                    const base::CallableTool& tool, const CallSyntax& syntax,
                                    const TokenTable& tokens);

/// A schema as a request gives it. Throws SchemaError, LimitError.
[[nodiscard]] boost::json::value parse_schema(const std::string& text);

}  // namespace grammar
