#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/reply_form.hpp"
#include "daemon/text/grammar/token_table.hpp"

#include <stdexcept>
#include <utility>

namespace grammar {

/// Thrown and caught inside of this folder only.
struct RefusalError : std::runtime_error {
    explicit RefusalError(Refusal r) : std::runtime_error{r.message}, refusal{std::move(r)} {}
    Refusal refusal;
};

/// The replies that follow a request's rules: reasoning where the family has it, free of them; then
/// the answer in its form, calls, or text with calls in it.
/// Throws RefusalError.
[[nodiscard]] Grammar make_reply_grammar(const base::OutputRules& rules, const ReplyForm& form,
                                         const TokenTable& tokens);

}  // namespace grammar
