#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace grammar {

inline constexpr std::uint32_t kNone = UINT32_MAX;
inline constexpr std::uint32_t kUnbounded = UINT32_MAX;

/// Frames that a text may open at once: two for each level of a recursive schema.
inline constexpr std::uint32_t kMaxDepth = 256;

/// What a grammar may cost. Beyond: LimitError.
inline constexpr std::size_t kMaxStates = 16'384;
inline constexpr std::size_t kMaxSubsetWork = 4'000'000;  ///< members of the state sets looked at

/// Why a grammar was given up. Thrown and caught inside of this folder only.
struct LimitError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A part of a text that one automaton describes: the body of a JSON string, or a rule.
struct Symbol {
    std::uint32_t rule = 0;  ///< kStringBody, or an index of Grammar's rules
    std::uint32_t min_chars = 0, max_chars = kUnbounded;  ///< of a string body

    friend auto operator<=>(const Symbol&, const Symbol&) = default;
};
inline constexpr std::uint32_t kStringBody = kNone;

struct Edge {
    std::uint8_t first = 0, last = 0;  ///< bytes
    std::uint32_t target = 0;
};

struct Call {
    Symbol symbol;
    std::uint32_t return_state = 0;
};

/// A state of a deterministic automaton whose letters are bytes and symbols.
struct State {
    std::uint32_t first_edge = 0, first_call = 0;
    std::uint16_t num_edges = 0, num_calls = 0;
    std::uint16_t need = 0;  ///< frames that have to be opened to get from here to the rule's end
    bool is_final = false;
    bool is_outer = false;  ///< of rule 0, where control tokens may stand for their texts
};

class Nfa;

/// A text's grammar: rules, each an automaton, that call each other. Rule 0 describes the whole
/// text, is called by none, and is the only one whose texts may be empty.
///
/// Built by one thread, then immutable.
class Grammar {
public:
    /// A rule whose body follows.
    [[nodiscard]] std::uint32_t add_rule();
    /// Gives a rule its body: the texts between two states of an automaton.
    /// Throws LimitError.
    void set_body(std::uint32_t rule, const Nfa& nfa, std::uint32_t start, std::uint32_t end);
    /// Control tokens within such a text may stand for their part of it, where rule 0 has it.
    void add_mark(std::string_view text) { marks_.emplace_back(text); }
    [[nodiscard]] bool is_mark(std::string_view control) const;
    /// Once all rules have bodies: leaves out what leads nowhere.
    /// @return false when no text at all, or none within kMaxDepth, is described
    /// Throws LimitError when a rule begins with itself.
    [[nodiscard]] bool finish();

    [[nodiscard]] std::uint32_t start(std::uint32_t rule) const { return starts_[rule]; }
    [[nodiscard]] const State& state(std::uint32_t id) const { return states_[id]; }
    [[nodiscard]] std::size_t num_states() const { return states_.size(); }
    [[nodiscard]] std::span<const Edge> edges(const State& s) const {
        return {edges_.data() + s.first_edge, s.num_edges};
    }
    [[nodiscard]] std::span<const Call> calls(const State& s) const {
        return {calls_.data() + s.first_call, s.num_calls};
    }
    /// The most frames that any state needs.
    [[nodiscard]] std::uint32_t max_need() const { return max_need_; }

private:
    [[nodiscard]] std::uint32_t need_of(const Symbol& symbol) const;
    void find_needs();
    void prune();
    void refuse_left_recursion() const;

    std::vector<std::uint32_t> starts_;  // [num_rules]
    std::vector<State> states_;
    std::vector<Edge> edges_;
    std::vector<Call> calls_;
    std::vector<std::string> marks_;
    std::uint32_t max_need_ = 0;
    std::size_t subset_work_ = 0;
};

/// An automaton with choices, as rules are written down.
class Nfa {
public:
    using Id = std::uint32_t;

    [[nodiscard]] Id add();
    void epsilon(Id from, Id to) { states_[from].epsilons.push_back(to); }
    void bytes(Id from, unsigned first, unsigned last, Id to) {
        states_[from].edges.push_back(
            {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), to});
    }
    void call(Id from, Symbol symbol, Id to) { states_[from].calls.push_back({symbol, to}); }
    /// @return where the text ends
    [[nodiscard]] Id text(Id from, std::string_view text);
    /// One character of a range, as UTF-8; surrogates are left out.
    void characters(Id from, char32_t first, char32_t last, Id to);
    /// Nothing or one space.
    [[nodiscard]] Id space(Id from);

    void set_outer(bool is_outer) { is_outer_ = is_outer; }

private:
    struct Node {
        std::vector<Id> epsilons;
        std::vector<Edge> edges;
        std::vector<Call> calls;
    };
    std::vector<Node> states_;
    bool is_outer_ = false;
    friend class Grammar;
};

}  // namespace grammar
