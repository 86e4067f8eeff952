#pragma once

#include "daemon/base/token_rules.hpp"
#include "daemon/text/grammar/automaton.hpp"
#include "daemon/text/grammar/state_masks.hpp"
#include "daemon/text/grammar/token_table.hpp"
#include "daemon/text/grammar/trie_walk.hpp"

#include <memory>

namespace grammar {

/// A grammar with its masks over one vocabulary. Immutable; any thread.
class Compiled final : public base::TokenRules, public std::enable_shared_from_this<Compiled> {
public:
    /// @param grammar  finished
    /// Throws LimitError.
    Compiled(Grammar grammar, std::shared_ptr<const TokenTable> tokens);

    /// The constraint keeps these rules alive; they must be held by a shared pointer.
    [[nodiscard]] std::unique_ptr<base::TokenConstraint> start() const override;

    [[nodiscard]] const Grammar& grammar() const { return grammar_; }
    [[nodiscard]] const StateMasks& masks() const { return masks_; }
    [[nodiscard]] const TokenTable& tokens() const { return *tokens_; }
    [[nodiscard]] std::size_t num_bytes() const;

private:
    Grammar grammar_;
    std::shared_ptr<const TokenTable> tokens_;  // held with the other grammars of the vocabulary
    StateMasks masks_;
};

/// Follows one text through a compiled grammar.
class Matcher final : public base::TokenConstraint {
public:
    explicit Matcher(std::shared_ptr<const Compiled> rules);

    void allow(std::span<std::uint32_t> bits) override;
    bool accept(std::int32_t token) override;
    [[nodiscard]] bool is_ended() const override { return is_ended_; }

    /// Whether the text may end here.
    [[nodiscard]] bool may_end() const { return places_.at_end; }

private:
    void add_string(const Config& place, std::span<std::uint32_t> bits);
    void add_state(const Config& place, std::span<std::uint32_t> bits);

    std::shared_ptr<const Compiled> rules_;  // held with the sequences that follow the same rules
    Machine machine_;
    Configs places_, next_;
    TrieWalk walk_;
    bool is_ended_ = false;  // by an end-of-generation token, or by one that was not allowed
};

}  // namespace grammar
