#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/engine/block_pool.hpp"

namespace engine {

/// Finds the KV blocks of a prompt that another sequence has computed already.
///
/// Every full block of tokens is a node of a tree: its tokens, behind those of its parent. Keys and
/// values of a block depend on all tokens before it, so a block may be used again exactly where the
/// whole chain is equal. Nodes are found by hash and compared token by token: two different texts
/// never share a block, whatever they hash to.
///
/// Blocks stay in the pool's hands: those without a holder are idle, and leave the cache when the
/// pool needs them.
///
/// Thread: engine. Cost: O(tokens) of the blocks looked at; no allocation after construction.
class PrefixCache {
public:
    /// A chain of blocks from the start of a sequence; never used again within a process.
    enum class Node : std::uint64_t { root = 0 };

    /// @param pool  must outlive the cache; its on_reuse() is the cache's
    PrefixCache(BlockPool& pool, std::int32_t block_size);
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    /// Follows `tokens` block by block as far as the cache knows them; takes a share of each block.
    /// @param blocks  receives the blocks, at most tokens.size() / block_size of them, in order
    /// @return        the last node
    [[nodiscard]] Node find(std::span<const std::int32_t> tokens, std::vector<BlockId>& blocks);

    /// Makes a computed block known. When the same tokens are known behind `parent` already, that
    /// node stands and `block` remains its holder's own.
    /// @param tokens  [block_size]
    /// @return        the node to pass as parent of the next block
    Node insert(Node parent, std::span<const std::int32_t> tokens, BlockId block);

    /// Forgets everything: the meaning of the cache's content has changed.
    void clear();

private:
    struct Entry {
        Node node = Node::root;  // root: the block is not in the cache
        Node parent = Node::root;
        std::size_t bucket = 0;
        std::int32_t next = -1;  // block in the same bucket
    };

    [[nodiscard]] std::size_t bucket_of(Node parent, std::span<const std::int32_t> tokens) const;
    [[nodiscard]] std::int32_t find_in(std::size_t bucket, Node parent,
                                       std::span<const std::int32_t> tokens) const;
    [[nodiscard]] std::span<std::int32_t> tokens_of(std::int32_t block);
    [[nodiscard]] std::span<const std::int32_t> tokens_of(std::int32_t block) const;
    void remove(BlockId id);

    BlockPool& pool_;
    std::size_t block_size_;
    std::uint64_t seed_;                 // of the hash: chosen at start, so that nobody can aim at a bucket
    std::uint64_t num_nodes_ = 0;
    std::vector<Entry> entries_;         // [num_blocks]
    std::vector<std::int32_t> tokens_;   // [num_blocks * block_size]
    std::vector<std::int32_t> buckets_;  // first block, -1 = none; a power of two
};

}  // namespace engine
