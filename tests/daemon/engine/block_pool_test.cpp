#include "daemon/engine/block_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace engine {
namespace {

TEST(BlockPool, GivesEachBlockOnce) {
    BlockPool pool{5};
    std::vector<BlockId> ids(5);
    ASSERT_TRUE(pool.take(ids));
    EXPECT_EQ(pool.num_free(), 0);
    EXPECT_EQ((std::set<BlockId>{ids.begin(), ids.end()}),
              (std::set<BlockId>{BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}}));
}

TEST(BlockPool, TakesAllOrNone) {
    BlockPool pool{3};
    std::vector<BlockId> four(4, BlockId{-7});
    const auto taken = pool.take(four);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error(), base::make_error_code(base::Errc::kv_exhausted));
    EXPECT_EQ(pool.num_free(), 3);
    EXPECT_EQ(four, std::vector<BlockId>(4, BlockId{-7}));
    EXPECT_TRUE(pool.take({}));
}

TEST(BlockPool, FreesASharedBlockWithItsLastHolder) {
    BlockPool pool{1};
    std::vector<BlockId> id(1);
    ASSERT_TRUE(pool.take(id));
    pool.share(id[0]);
    pool.drop(id[0]);
    EXPECT_EQ(pool.num_free(), 0);
    pool.drop(id[0]);
    EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, TakesTheBlockThatIsIdleForLongestAndSaysSo) {
    BlockPool pool{3};
    std::vector<BlockId> reused;
    pool.on_reuse([&](BlockId id) { reused.push_back(id); });
    std::vector<BlockId> all(3), two(2);
    ASSERT_TRUE(pool.take(all));
    for (const BlockId id : all) pool.keep(id);
    for (const int i : {1, 0, 2}) pool.drop(all[static_cast<std::size_t>(i)]);
    EXPECT_EQ(pool.num_idle(), 3);
    EXPECT_EQ(pool.num_free(), 3);
    pool.share(all[1]);  // wanted again: the others are older now
    ASSERT_TRUE(pool.take(two));
    EXPECT_EQ(two, (std::vector<BlockId>{all[0], all[2]}));
    EXPECT_EQ(reused, two);
    EXPECT_FALSE(pool.take(std::span{two}.first(1)));
    pool.drop(two[0]);  // has lost its content: free, not idle
    EXPECT_EQ(pool.num_idle(), 0);
    pool.forget(all[1]);
    pool.drop(all[1]);
    EXPECT_EQ(pool.num_idle(), 0);
    EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolDeathTest, RefusesToDropOrShareWhatNobodyHolds) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    BlockPool pool{2};
    std::vector<BlockId> id(1);
    ASSERT_TRUE(pool.take(id));
    pool.drop(id[0]);
    EXPECT_DEATH(pool.drop(id[0]), "holders > 0");
    EXPECT_DEATH(pool.share(id[0]), "holders > 0");
    EXPECT_DEATH(BlockPool{0}, "num_blocks >= 1");
}

/// Against a map of holders, under random operations.
TEST(BlockPool, ConservesBlocks) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng{seed};
    const auto up_to = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n}(rng); };
    for (int round = 0; round < 50; ++round) {
        const auto size = static_cast<std::int32_t>(1 + up_to(30));
        BlockPool pool{size};
        std::map<BlockId, int> holders;
        for (int i = 0; i < 300; ++i) {
            const auto pick = [&] { return std::next(holders.begin(), static_cast<long>(up_to(holders.size() - 1))); };
            switch (up_to(2)) {
                case 0: {
                    std::vector<BlockId> ids(up_to(8));
                    const bool fits = ids.size() <= static_cast<std::size_t>(pool.num_free());
                    ASSERT_EQ(static_cast<bool>(pool.take(ids)), fits);
                    for (const BlockId id : ids)
                        if (fits) {
                            ASSERT_TRUE(holders.emplace(id, 1).second) << "block given twice";
                            ASSERT_GE(static_cast<std::int32_t>(id), 0);
                            ASSERT_LT(static_cast<std::int32_t>(id), size);
                        }
                    break;
                }
                case 1:
                    if (holders.empty()) break;
                    if (const auto it = pick(); true) {
                        pool.share(it->first);
                        ++it->second;
                    }
                    break;
                default:
                    if (holders.empty()) break;
                    if (const auto it = pick(); true) {
                        pool.drop(it->first);
                        if (--it->second == 0) holders.erase(it);
                    }
            }
            ASSERT_EQ(pool.num_free() + static_cast<std::int32_t>(holders.size()), size);
        }
    }
}

}  // namespace
}  // namespace engine
