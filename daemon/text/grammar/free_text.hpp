#pragma once

#include "daemon/text/grammar/automaton.hpp"

#include <span>
#include <string>
#include <vector>

namespace grammar {

/// Any bytes up to the first of some marks.
struct FreeText {
    Nfa::Id start = 0;
    std::vector<Nfa::Id> inside;  ///< all states before a mark is complete, `start` among them
    std::vector<Nfa::Id> behind;  ///< [num_marks] where each mark ends
};

/// @param marks  not empty, none a part of another
/// Source: Aho & Corasick, "Efficient string matching", 1975.
[[nodiscard]] FreeText add_free_text(Nfa& nfa, std::span<const std::string> marks);

}  // namespace grammar
