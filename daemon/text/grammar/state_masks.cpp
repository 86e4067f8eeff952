#include "daemon/text/grammar/state_masks.hpp"

#include "daemon/text/grammar/trie_walk.hpp"

#include <bitset>

namespace grammar {

namespace {

constexpr std::size_t kWorkOfStacks = 10;  // of a step with stacks, in steps by a table

/// The states that a text may come to.
std::vector<std::uint32_t> reachable(const Grammar& grammar) {
    std::vector<bool> is_known(grammar.num_states());
    std::vector<std::uint32_t> out;
    const auto add = [&](std::uint32_t id) {
        if (!is_known[id]) out.push_back(id);
        is_known[id] = true;
    };
    add(grammar.start(0));
    for (std::size_t i = 0; i < out.size(); ++i) {
        const State& s = grammar.state(out[i]);
        for (const Edge& edge : grammar.edges(s)) add(edge.target);
        for (const Call& call : grammar.calls(s)) {
            add(call.return_state);
            if (call.symbol.rule != kStringBody) add(grammar.start(call.symbol.rule));
        }
    }
    return out;
}

/// Bytes that may follow a rule or a string anywhere.
std::bitset<256> bytes_behind(const Grammar& grammar, std::span<const std::uint32_t> states) {
    std::bitset<256> out;
    Machine machine{grammar};
    Configs configs;
    for (const std::uint32_t id : states) {
        for (const Call& call : grammar.calls(grammar.state(id))) {
            configs.clear();
            machine.forget_frames(0);
            machine.add({call.return_state}, configs);
            machine.add_first_bytes(configs, out);
        }
    }
    return out;
}

/// Walks from states that no call can follow before the end of their rule: by tables of
/// transitions, since patterns have many such states that half of the vocabulary may follow.
class PlainWalk {
public:
    explicit PlainWalk(const Grammar& grammar)
        : grammar_{grammar}, is_plain_(grammar.num_states(), true), tables_(grammar.num_states()) {
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t i = grammar.num_states(); i-- > 0;) {
                const State& s = grammar.state(static_cast<std::uint32_t>(i));
                bool is_plain = s.num_calls == 0;
                for (const Edge& edge : grammar.edges(s)) is_plain &= is_plain_[edge.target];
                changed |= is_plain_[i] && !is_plain;
                is_plain_[i] = is_plain_[i] && is_plain;
            }
        }
    }

    [[nodiscard]] bool is_plain(std::uint32_t state) const { return is_plain_[state]; }

    /// @param visit  called with each node that is reached, and whether the rule may end there
    /// @return       nodes looked at
    template <class Visit>
    std::size_t run(std::uint32_t state, const TokenTrie& trie, Visit visit) {
        path_.resize(trie.max_depth() + 1U);
        path_[0] = state;
        std::size_t num_looked_at = 0;
        for (std::uint32_t i = 1; i < trie.num_nodes(); ++num_looked_at) {
            const TokenTrie::Node& node = trie.node(i);
            const std::uint32_t next = table(path_[node.depth - 1U])[node.byte];
            if (next == kNone) {
                i = node.end;
                continue;
            }
            path_[node.depth] = next;
            visit(i, grammar_.state(next).is_final);
            ++i;
        }
        return num_looked_at;
    }

private:
    [[nodiscard]] const std::vector<std::uint32_t>& table(std::uint32_t state) {
        std::vector<std::uint32_t>& out = tables_[state];
        if (!out.empty()) return out;
        out.resize(256, kNone);
        for (const Edge& edge : grammar_.edges(grammar_.state(state)))
            for (unsigned byte = edge.first; byte <= edge.last; ++byte) out[byte] = edge.target;
        return out;
    }

    const Grammar& grammar_;
    std::vector<bool> is_plain_;
    std::vector<std::vector<std::uint32_t>> tables_;  // [num_states][256], made when first used
    std::vector<std::uint32_t> path_;                 // states by depth
};

}  // namespace

StateMasks::StateMasks(const Grammar& grammar, const TokenTable& tokens) {
    const std::uint32_t most_opened = kMaxOpened + grammar.max_need();
    if (most_opened >= kMaxDepth) throw LimitError{"it nests too deep"};
    max_depth_ = kMaxDepth - most_opened;
    masks_.resize(grammar.num_states());
    const std::vector<std::uint32_t> states = reachable(grammar);
    const std::bitset<256> next_bytes = bytes_behind(grammar, states);

    Machine machine{grammar};
    machine.limit_depth(most_opened);
    TrieWalk walk;
    PlainWalk plain_walk{grammar};
    const TokenTrie& trie = tokens.trie();
    std::vector<std::uint32_t> is_inside(num_words(tokens.vocab_size()));
    std::vector<ControlToken> marks;
    for (const ControlToken& control : tokens.controls())
        if (grammar.is_mark(control.text)) marks.push_back(control);
    std::size_t work = 0;
    for (const std::uint32_t id : states) {
        const State& s = grammar.state(id);
        if (s.num_edges == 0) continue;
        std::vector<std::int32_t> inside;
        std::vector<TokenTrie::Entry> behind;
        const auto take = [&](std::uint32_t i, bool may_end) {
            for (const auto& token : trie.tokens_at(i)) inside.push_back(token.id);
            if (!may_end || s.is_outer) return;  // behind rule 0 there is nothing
            const TokenTrie::Node& node = trie.node(i);
            for (const auto& token : trie.tokens_between(i + 1, node.end)) {
                const std::string_view rest = tokens.piece(token.id).substr(node.depth);
                if (next_bytes[static_cast<unsigned char>(rest.front())])
                    behind.push_back({rest, token.id});
            }
        };
        if (plain_walk.is_plain(id)) {
            work += plain_walk.run(id, trie, take);
        } else {
            walk.start().clear();
            walk.start().items.push_back({id});
            work += kWorkOfStacks *
                    walk.run(machine, trie,
                             [&](std::uint32_t i, const Configs& there) { take(i, there.at_end); });
        }
        if (s.is_outer) {
            for (const ControlToken& control : marks) {
                Configs from, to;
                from.items.push_back({id});
                for (const char c : control.text) {
                    machine.step(from, static_cast<std::uint8_t>(c), to);
                    std::swap(from, to);
                }
                if (!from.is_dead()) inside.push_back(control.token);
                machine.forget_frames(0);
            }
        }
        if (work > kMaxWork) throw LimitError{"it describes too many texts"};
        if (!behind.empty() && !inside.empty()) {
            for (const std::int32_t token : inside) set_bit(is_inside, token);
            std::erase_if(behind,
                          [&](const auto& entry) { return has_bit(is_inside, entry.token); });
            for (const std::int32_t token : inside)
                is_inside[static_cast<std::size_t>(token) / 32] = 0;
        }
        masks_[id] = {TokenSet{std::move(inside), tokens.vocab_size()},
                      TokenTrie{std::move(behind)}};
    }
}

std::size_t StateMasks::num_bytes() const {
    std::size_t out = masks_.size() * sizeof(Mask);
    for (const Mask& mask : masks_) out += mask.inside.num_bytes() + mask.behind.num_bytes();
    return out;
}

}  // namespace grammar
