#include "daemon/engine/prefix_cache.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace engine {
namespace {

using Tokens = std::vector<std::int32_t>;

struct PrefixCacheTest : testing::Test {
    static constexpr std::int32_t kBlockSize = 4;
    BlockPool pool{6};
    PrefixCache cache{pool, kBlockSize};

    static Tokens range(std::int32_t first, std::size_t count) {
        Tokens tokens(count);
        std::iota(tokens.begin(), tokens.end(), first);
        return tokens;
    }
    /// What a sequence does that has computed `tokens`: blocks of its own, all made known.
    std::vector<BlockId> compute(const Tokens& tokens) {
        std::vector<BlockId> blocks(tokens.size() / kBlockSize);
        EXPECT_TRUE(pool.take(blocks));
        PrefixCache::Node node = PrefixCache::Node::root;
        for (std::size_t b = 0; b < blocks.size(); ++b)
            node = cache.insert(node, std::span{tokens}.subspan(b * kBlockSize, kBlockSize), blocks[b]);
        return blocks;
    }
    void drop(const std::vector<BlockId>& blocks) {
        for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) pool.drop(*b);
    }
    std::vector<BlockId> find(const Tokens& tokens) {
        std::vector<BlockId> blocks;
        static_cast<void>(cache.find(tokens, blocks));
        return blocks;
    }
};

TEST_F(PrefixCacheTest, FindsWhatWasComputedWhileItIsHeldAndAfter) {
    const Tokens tokens = range(0, 10);  // two blocks and a half
    const auto blocks = compute(tokens);
    ASSERT_EQ(blocks.size(), 2U);
    EXPECT_EQ(find(tokens), blocks);
    EXPECT_EQ(pool.num_holders(blocks[0]), 2);
    drop(blocks);
    drop(blocks);
    EXPECT_EQ(pool.num_free(), 6);
    EXPECT_EQ(pool.num_idle(), 2);
    EXPECT_EQ(find(tokens), blocks);
    EXPECT_EQ(pool.num_idle(), 0);
    drop(blocks);
}

TEST_F(PrefixCacheTest, StopsWhereTheTextsPart) {
    const auto blocks = compute(range(0, 12));
    Tokens other = range(0, 12);
    other[6] = 99;
    EXPECT_EQ(find(other), std::vector<BlockId>{blocks[0]});
    other[0] = 98;
    EXPECT_TRUE(find(other).empty());
    EXPECT_TRUE(find(range(0, 3)).empty());
}

TEST_F(PrefixCacheTest, TheSameTokensBehindAnotherBeginningAreAnotherBlock) {
    Tokens a = range(0, 8), b = range(100, 8);
    std::copy_n(a.begin() + 4, 4, b.begin() + 4);
    const auto of_a = compute(a), of_b = compute(b);
    EXPECT_EQ(find(a), of_a);
    EXPECT_EQ(find(b), of_b);
}

TEST_F(PrefixCacheTest, WhatIsKnownAlreadyStands) {
    const Tokens tokens = range(0, 8);
    const auto first = compute(tokens), second = compute(tokens);
    EXPECT_EQ(find(tokens), first);
    drop(first);  // of find()
    drop(second);
    EXPECT_EQ(pool.num_idle(), 0);  // the second copy is of use to nobody
    EXPECT_EQ(pool.num_free(), 4);
}

TEST_F(PrefixCacheTest, TheOldestIdleBlockIsReusedFirstAndEndsBeforeBeginnings) {
    const Tokens old = range(0, 8), recent = range(100, 8);
    const auto of_old = compute(old), of_recent = compute(recent);
    drop(of_old);
    drop(of_recent);
    std::vector<BlockId> taken(3);
    ASSERT_TRUE(pool.take(taken));  // two were free
    EXPECT_EQ(taken[2], of_old[1]);
    EXPECT_EQ(find(old), std::vector<BlockId>{of_old[0]});
    EXPECT_EQ(find(recent), of_recent);
    ASSERT_FALSE(pool.take(taken));
}

TEST_F(PrefixCacheTest, ClearForgetsEverythingAndFreesWhatIsIdle) {
    const auto held = compute(range(0, 8)), idle = compute(range(100, 8));
    drop(idle);
    cache.clear();
    EXPECT_EQ(pool.num_idle(), 0);
    EXPECT_EQ(pool.num_free(), 4);
    EXPECT_TRUE(find(range(0, 8)).empty());
    EXPECT_TRUE(find(range(100, 8)).empty());
    drop(held);
    EXPECT_EQ(pool.num_free(), 6);
    EXPECT_EQ(find(compute(range(0, 8)).empty() ? Tokens{} : range(0, 8)).size(), 2U);
}

/// Random texts of few different tokens in a pool that is too small for them, against a map from
/// whole prefixes to what the block held last.
TEST_F(PrefixCacheTest, NeverGivesABlockOfAnotherText) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng{seed};
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>{0, n}(rng); };
    std::map<BlockId, Tokens> content;
    std::size_t num_found = 0;
    for (int round = 0; round < 5000; ++round) {
        Tokens tokens(static_cast<std::size_t>(up_to(24)));
        for (auto& token : tokens) token = up_to(1);
        std::vector<BlockId> blocks;
        PrefixCache::Node node = cache.find(tokens, blocks);
        num_found += blocks.size();
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const Tokens prefix{tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((b + 1) * kBlockSize)};
            ASSERT_EQ(content.at(blocks[b]), prefix) << "round " << round;
        }
        while ((blocks.size() + 1) * kBlockSize <= tokens.size()) {
            std::vector<BlockId> one(1);
            ASSERT_TRUE(pool.take(one));
            const std::size_t begin = blocks.size() * kBlockSize;
            content[one[0]] = {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(begin + kBlockSize)};
            blocks.push_back(one[0]);
            node = cache.insert(node, std::span{tokens}.subspan(begin, kBlockSize), one[0]);
        }
        drop(blocks);
        ASSERT_EQ(pool.num_free(), 6);
        if (up_to(999) == 0) cache.clear();
    }
    EXPECT_GT(num_found, 100U);
}

}  // namespace
}  // namespace engine
