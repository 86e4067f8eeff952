#include "daemon/plugin/lanes.hpp"

#include "sdk/cxx/plugin.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>

namespace {

using plugin::WorkerLanes;

class LanesOfWidth : public testing::TestWithParam<std::uint32_t> {};

TEST_P(LanesOfWidth, EachItemRunsOnceWhateverTheCount) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    WorkerLanes lanes{{.width = GetParam(), .spin = std::chrono::microseconds{rng() % 2 * 20}}};
    for (int round = 0; round < 2000; ++round) {
        // Plain ints: an item run twice or a result not visible on return is a race that tsan sees.
        std::vector<int> runs(rng() % 200, 0);
        sdk::parallel_for(lanes.abi(), static_cast<std::int64_t>(runs.size()),
                          [&](std::uint32_t i, std::uint32_t) { runs[i] += 1 + round; });
        ASSERT_EQ(std::count(runs.begin(), runs.end(), 1 + round),
                  static_cast<std::ptrdiff_t>(runs.size()))
            << "round " << round;
    }
}

TEST_P(LanesOfWidth, NoTwoItemsShareALaneAtOnce) {
    WorkerLanes lanes{{.width = GetParam()}};
    ASSERT_EQ(lanes.abi()->width, GetParam());
    std::vector<std::atomic<int>> inside(GetParam());
    std::atomic<int> overlaps{0}, out_of_range{0};
    for (int round = 0; round < 200; ++round)
        sdk::parallel_for(lanes.abi(), 97, [&](std::uint32_t, std::uint32_t lane) {
            if (lane >= inside.size()) {
                ++out_of_range;
                return;
            }
            if (inside[lane].fetch_add(1) != 0) ++overlaps;
            inside[lane].fetch_sub(1);
        });
    EXPECT_EQ(overlaps, 0);
    EXPECT_EQ(out_of_range, 0);
}

INSTANTIATE_TEST_SUITE_P(Widths, LanesOfWidth, testing::Values(1u, 2u, 3u, 8u));

TEST(WorkerLanes, SlowItemsAreSharedByAllLanes) {
    // Lane 0 holds its item until another lane has taken one: ends only if a second lane joins in.
    WorkerLanes lanes{{.width = 2, .spin = std::chrono::microseconds{0}}};
    std::atomic<bool> other{false};
    std::atomic<int> done{0};
    sdk::parallel_for(lanes.abi(), 2, [&](std::uint32_t, std::uint32_t lane) {
        if (lane == 1) other = true;
        while (!other) std::this_thread::yield();
        ++done;
    });
    EXPECT_EQ(done, 2);
}

TEST(WorkerLanes, NothingRunsForNoItems) {
    WorkerLanes lanes{{.width = 3}};
    int runs = 0;
    lanes.run(
        0, [](void* n, std::uint32_t, std::uint32_t) { ++*static_cast<int*>(n); }, &runs);
    EXPECT_EQ(runs, 0);
}

TEST(WorkerLanes, WidthOneStaysOnTheCallersThread) {
    WorkerLanes lanes{{.width = 1}};
    std::set<std::thread::id> ids;
    lanes.run(
        64,
        [](void* set, std::uint32_t, std::uint32_t) {
            static_cast<std::set<std::thread::id>*>(set)->insert(std::this_thread::get_id());
        },
        &ids);
    EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

TEST(WorkerLanes, ThreadsAreNamed) {
    WorkerLanes lanes{{.width = 2, .spin = std::chrono::microseconds{0}, .name = "a-long-name"}};
    std::atomic<bool> other{false};
    char name[16] = {};
    sdk::parallel_for(lanes.abi(), 2, [&](std::uint32_t, std::uint32_t lane) {
        if (lane == 1) {
            pthread_getname_np(pthread_self(), name, sizeof name);
            other = true;
        }
        while (!other) std::this_thread::yield();
    });
    EXPECT_STREQ(name, "a-long-name/1");
}

TEST(WorkerLanes, SeveralPoolsRunBesideEachOther) {
    constexpr int kPools = 3;
    std::vector<long> sums(kPools, 0);
    std::vector<std::thread> streams;
    for (int p = 0; p < kPools; ++p)
        streams.emplace_back([&sums, p] {
            WorkerLanes lanes{{.width = 2}};
            std::vector<long> part(lanes.width(), 0);
            for (int round = 0; round < 500; ++round)
                sdk::parallel_for(lanes.abi(), 31,
                                  [&](std::uint32_t i, std::uint32_t lane) { part[lane] += i; });
            sums[static_cast<std::size_t>(p)] = std::accumulate(part.begin(), part.end(), 0L);
        });
    for (std::thread& t : streams) t.join();
    EXPECT_EQ(sums, std::vector<long>(kPools, 500L * 30 * 31 / 2));
}

TEST(WorkerLanesDeathTest, RunFromInsideAnItemAborts) {
    EXPECT_DEATH(
        {
            WorkerLanes lanes{{.width = 1}};
            lanes.run(
                2,
                [](void* pool, std::uint32_t, std::uint32_t) {
                    static_cast<WorkerLanes*>(pool)->run(
                        1, [](void*, std::uint32_t, std::uint32_t) {}, nullptr);
                },
                &lanes);
        },
        "broken invariant");
}

}  // namespace
