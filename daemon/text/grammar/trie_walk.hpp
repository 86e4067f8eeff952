#pragma once

#include "daemon/text/grammar/machine.hpp"
#include "daemon/text/grammar/token_trie.hpp"

#include <bitset>
#include <vector>

namespace grammar {

/// Runs a machine over all byte strings of a trie, each beginning of them once. Keeps its memory
/// from one walk to the next. One thread.
class TrieWalk {
public:
    /// Where walks begin: to be filled before each.
    [[nodiscard]] Configs& start() { return level(0).configs; }

    /// @param visit  called with each node that is reached, and the places there (never dead)
    /// @return       nodes looked at
    template <class Visit>
    std::size_t run(Machine& machine, const TokenTrie& trie, Visit visit) {
        levels_.resize(std::max<std::size_t>(levels_.size(), trie.max_depth() + 1U));
        const std::size_t frames_before = machine.num_frames();
        enter(machine, 0, trie.num_nodes());
        std::size_t num_looked_at = 0;
        for (std::uint32_t i = 1; i < trie.num_nodes();) {
            const TokenTrie::Node& node = trie.node(i);
            ++num_looked_at;
            Level& from = levels_[node.depth - 1U];
            if (from.has_first_bytes && !from.first_bytes[node.byte]) {
                i = node.end;
                continue;
            }
            machine.forget_frames(from.num_frames);
            Level& to = levels_[node.depth];
            machine.step(from.configs, node.byte, to.configs);
            if (to.configs.is_dead()) {
                i = node.end;
                continue;
            }
            enter(machine, node.depth, node.end - i);
            visit(i, to.configs);
            ++i;
        }
        machine.forget_frames(frames_before);
        return num_looked_at;
    }

private:
    struct Level {
        Configs configs;
        std::bitset<256> first_bytes;
        bool has_first_bytes = false;
        std::size_t num_frames = 0;  // of the machine, with those of `configs`
    };

    Level& level(std::size_t depth) {
        if (levels_.size() <= depth) levels_.resize(depth + 1);
        return levels_[depth];
    }
    void enter(const Machine& machine, std::size_t depth, std::uint32_t num_nodes) {
        constexpr std::uint32_t kFew = 8;  // nodes below which the bytes are not worth collecting
        Level& here = levels_[depth];
        here.num_frames = machine.num_frames();
        here.has_first_bytes = num_nodes > kFew;
        if (!here.has_first_bytes) return;
        here.first_bytes.reset();
        machine.add_first_bytes(here.configs, here.first_bytes);
    }

    std::vector<Level> levels_;  // [deepest node + 1]
};

}  // namespace grammar
