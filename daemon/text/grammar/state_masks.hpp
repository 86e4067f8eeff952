#pragma once

#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/token_table.hpp"

#include <cstdint>
#include <vector>

namespace grammar {

/// For each state of a grammar the tokens that may follow in it, as far as that depends on the
/// state alone; of those that go on behind the end of its rule, what they print there.
///
/// Immutable once made. Thread: any.
class StateMasks {
public:
    struct Mask {
        TokenSet inside;   ///< may follow
        TokenTrie behind;  ///< may follow where what they print here may follow the rule
    };
    /// Nodes of the vocabulary's tree that making them may look at, those with stacks counted
    /// tenfold.
    static constexpr std::size_t kMaxWork = 200'000'000;
    /// Frames that one token may open. A mask holds where this many and the grammar's largest need
    /// are still to be had.
    static constexpr std::uint32_t kMaxOpened = 64;

    /// Throws LimitError.
    StateMasks(const Grammar& grammar, const TokenTable& tokens);

    [[nodiscard]] const Mask& of(std::uint32_t state) const { return masks_[state]; }
    /// How deep a place may be for its mask to hold.
    [[nodiscard]] std::uint32_t max_depth() const { return max_depth_; }
    [[nodiscard]] std::size_t num_bytes() const;

private:
    std::vector<Mask> masks_;  // [num_states]
    std::uint32_t max_depth_;
};

}  // namespace grammar
