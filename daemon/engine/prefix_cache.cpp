#include "daemon/engine/prefix_cache.hpp"

#include <algorithm>
#include <bit>
#include <random>

#include "daemon/base/check.hpp"

namespace engine {

PrefixCache::PrefixCache(BlockPool& pool, std::int32_t block_size)
    : pool_{pool},
      block_size_{static_cast<std::size_t>(block_size)},
      seed_{std::uint64_t{std::random_device{}()} << 32U | std::random_device{}()},
      entries_(static_cast<std::size_t>(pool.num_blocks())),
      tokens_(entries_.size() * block_size_),
      buckets_(std::bit_ceil(entries_.size() * 2), -1) {
    pool_.on_reuse([this](BlockId id) { remove(id); });
}

PrefixCache::~PrefixCache() {
    clear();
    pool_.on_reuse(nullptr);
}

PrefixCache::Node PrefixCache::find(std::span<const std::int32_t> tokens, std::vector<BlockId>& blocks) {
    Node node = Node::root;
    for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
        const auto block_tokens = tokens.first(block_size_);
        const std::int32_t block = find_in(bucket_of(node, block_tokens), node, block_tokens);
        if (block < 0) break;
        pool_.share(BlockId{block});
        blocks.push_back(BlockId{block});
        node = entries_[static_cast<std::size_t>(block)].node;
    }
    return node;
}

PrefixCache::Node PrefixCache::insert(Node parent, std::span<const std::int32_t> tokens, BlockId block) {
    CHECK(tokens.size() == block_size_);
    const std::size_t bucket = bucket_of(parent, tokens);
    if (const std::int32_t known = find_in(bucket, parent, tokens); known >= 0)
        return entries_[static_cast<std::size_t>(known)].node;
    Entry& entry = entries_[static_cast<std::size_t>(block)];
    CHECK(entry.node == Node::root);
    entry = {Node{++num_nodes_}, parent, bucket, buckets_[bucket]};
    buckets_[bucket] = static_cast<std::int32_t>(block);
    std::ranges::copy(tokens, tokens_of(static_cast<std::int32_t>(block)).begin());
    pool_.keep(block);
    return entry.node;
}

void PrefixCache::clear() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].node == Node::root) continue;
        const BlockId id{static_cast<std::int32_t>(i)};
        remove(id);
        pool_.forget(id);
    }
}

void PrefixCache::remove(BlockId id) {
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    std::int32_t* link = &buckets_[entry.bucket];
    while (*link != static_cast<std::int32_t>(id)) link = &entries_[static_cast<std::size_t>(*link)].next;
    *link = entry.next;
    entry = {};
}

std::size_t PrefixCache::bucket_of(Node parent, std::span<const std::int32_t> tokens) const {
    std::uint64_t hash = seed_ ^ static_cast<std::uint64_t>(parent);
    const auto mix = [&hash](std::uint64_t value) {
        hash = (hash ^ value) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio, odd
        hash ^= hash >> 32U;
    };
    mix(0);
    for (const std::int32_t token : tokens) mix(static_cast<std::uint32_t>(token));
    return static_cast<std::size_t>(hash) & (buckets_.size() - 1);
}

std::int32_t PrefixCache::find_in(std::size_t bucket, Node parent, std::span<const std::int32_t> tokens) const {
    std::int32_t block = buckets_[bucket];
    while (block >= 0) {
        const Entry& entry = entries_[static_cast<std::size_t>(block)];
        if (entry.parent == parent && std::ranges::equal(tokens_of(block), tokens)) break;
        block = entry.next;
    }
    return block;
}

std::span<std::int32_t> PrefixCache::tokens_of(std::int32_t block) {
    return std::span{tokens_}.subspan(static_cast<std::size_t>(block) * block_size_, block_size_);
}

std::span<const std::int32_t> PrefixCache::tokens_of(std::int32_t block) const {
    return std::span{tokens_}.subspan(static_cast<std::size_t>(block) * block_size_, block_size_);
}

}  // namespace engine
