#pragma once

#include "daemon/text/grammar/automaton.hpp"

#include <string>
#include <string_view>

namespace grammar {

/// A pattern that is outside the supported subset; the words say what of it. Caught in this folder.
struct PatternError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Spelling {
    plain,        ///< characters stand for themselves
    json_string,  ///< as inside of a JSON string: quotes, backslashes and control characters
                  ///< escaped
};

struct PatternOptions {
    Spelling spelling = Spelling::plain;
    bool is_whole = false;  ///< the pattern describes all of the text, as with ^ and $ around it
};

/// Adds the texts that match an ECMAScript pattern to an automaton, between a state and the one
/// that is returned.
///
/// Supported: literals, `.`, classes, \d \w \s and their complements, groups without names, |, ? *
/// + and {m,n} with bounds up to 1000, lazy forms (they match the same texts), ^ at the beginning
/// and $ at the end of the pattern or of a branch. Without them anything may stand before and
/// behind. Not: back-references, look-around, \b, \p, named groups, case-insensitivity. Throws
/// PatternError, LimitError.
[[nodiscard]] Nfa::Id add_pattern(Nfa& nfa, Nfa::Id from, std::string_view pattern,
                                  PatternOptions options);

}  // namespace grammar
