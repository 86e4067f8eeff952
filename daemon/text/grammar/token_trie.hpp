#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace grammar {

/// Byte strings with the tokens that they belong to, as a tree in preorder: a walk goes on with the
/// next node, or leaves out a subtree by going to its end.
class TokenTrie {
public:
    struct Entry {
        std::string_view bytes;
        std::int32_t token = 0;
        std::uint32_t num_chars = 0;  ///< free for use
    };
    struct Node {
        std::uint32_t end = 0;          ///< the first node behind the subtree
        std::uint32_t first_token = 0;  ///< of those whose bytes end here
        std::uint16_t depth = 0;        ///< bytes so far; of the root, which is node 0, none
        std::uint8_t byte = 0;          ///< the last of them
    };
    struct Token {
        std::int32_t id = 0;
        std::uint32_t num_chars = 0;
    };

    TokenTrie() = default;
    /// @param entries  of 65,535 bytes at most
    explicit TokenTrie(std::vector<Entry> entries);

    [[nodiscard]] std::uint32_t num_nodes() const {
        return static_cast<std::uint32_t>(nodes_.size()) - 1;
    }
    [[nodiscard]] const Node& node(std::uint32_t i) const { return nodes_[i]; }
    /// Tokens whose bytes end at a node.
    [[nodiscard]] std::span<const Token> tokens_at(std::uint32_t i) const {
        return tokens_between(i, i + 1);
    }
    /// Tokens whose bytes end in begin..end-1.
    [[nodiscard]] std::span<const Token> tokens_between(std::uint32_t begin,
                                                        std::uint32_t end) const {
        return std::span{tokens_}.subspan(nodes_[begin].first_token,
                                          nodes_[end].first_token - nodes_[begin].first_token);
    }
    [[nodiscard]] std::uint16_t max_depth() const { return max_depth_; }
    [[nodiscard]] bool is_empty() const { return tokens_.empty(); }
    [[nodiscard]] std::size_t num_bytes() const {
        return nodes_.size() * sizeof(Node) + tokens_.size() * sizeof(Token);
    }

private:
    std::vector<Node> nodes_{Node{1, 0, 0, 0}, Node{}};  // [num_nodes + 1]
    std::vector<Token> tokens_;
    std::uint16_t max_depth_ = 0;
};

}  // namespace grammar
