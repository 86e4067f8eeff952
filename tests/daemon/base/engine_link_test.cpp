#include "daemon/base/engine_link.hpp"

#include "daemon/base/spsc_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace base {
namespace {

TEST(SpscQueue, RoundsUpAndTellsFull) {
    SpscQueue<int> queue{3};
    EXPECT_EQ(queue.capacity(), 4U);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(i));
    int extra = 9;
    EXPECT_FALSE(queue.push(extra));
    for (int i = 0, out = 0; i < 4; ++i) {
        ASSERT_TRUE(queue.pop(out));
        EXPECT_EQ(out, i);
    }
    EXPECT_TRUE(queue.empty());
    int out = 0;
    EXPECT_FALSE(queue.pop(out));
}

TEST(SpscQueue, LeavesARefusedItemWhole) {
    SpscQueue<std::unique_ptr<int>> queue{2};
    auto a = std::make_unique<int>(1), b = std::make_unique<int>(2), c = std::make_unique<int>(3);
    EXPECT_TRUE(queue.push(a));
    EXPECT_TRUE(queue.push(b));
    EXPECT_FALSE(queue.push(c));
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(*c, 3);
}

TEST(SpscQueue, TwoThreadsSeeEveryItemOnceAndInOrder) {
    constexpr std::uint64_t kItems = 20'000;
    SpscQueue<std::uint64_t> queue{61};
    std::thread producer{[&] {
        for (std::uint64_t i = 0; i < kItems; ++i) {
            std::uint64_t item = i;
            while (!queue.push(item)) std::this_thread::yield();
        }
    }};
    for (std::uint64_t expected = 0; expected < kItems;) {
        std::uint64_t item = 0;
        if (!queue.pop(item)) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(item, expected++);
    }
    producer.join();
    EXPECT_TRUE(queue.empty());
}

Request request(std::uint64_t id) {
    Request out;
    out.id = RequestId{id};
    out.prompt = {1, 2, 3};
    return out;
}

TEST(EngineLink, RefusesWhenFullAndLeavesTheRequestWhole) {
    EngineLink link{2};
    Request first = request(1), second = request(2), third = request(3);
    EXPECT_TRUE(link.submit(first));
    EXPECT_TRUE(link.submit(second));
    EXPECT_FALSE(link.submit(third));
    EXPECT_EQ(third.id, RequestId{3});
    EXPECT_EQ(third.prompt.size(), 3U);
}

TEST(EngineLink, ACancelNeverOvertakesItsRequest) {
    EngineLink link{4};
    Request one = request(1);
    ASSERT_TRUE(link.submit(one));
    link.cancel(RequestId{1});
    Submission item;
    ASSERT_TRUE(link.next(item));
    EXPECT_TRUE(std::holds_alternative<Request>(item));
    ASSERT_TRUE(link.next(item));
    ASSERT_TRUE(std::holds_alternative<Cancel>(item));
    EXPECT_EQ(std::get<Cancel>(item).id, RequestId{1});
    EXPECT_FALSE(link.next(item));
}

TEST(EngineLink, CancelsAreNeverLost) {
    EngineLink link{2};
    constexpr std::uint64_t kCancels = 50;  // the queue holds four
    for (std::uint64_t i = 0; i < kCancels; ++i) link.cancel(RequestId{i});
    std::uint64_t seen = 0;
    std::vector<TokenEvent> none;
    for (int round = 0; round < 100 && seen < kCancels; ++round) {
        Submission item;
        while (link.next(item)) {
            EXPECT_EQ(std::get<Cancel>(item).id, RequestId{seen});
            ++seen;
        }
        link.drain_events(none);  // the io thread comes by and sends what waits
    }
    EXPECT_EQ(seen, kCancels);
}

TEST(EngineLink, WakesTheIoThreadOnceForABatch) {
    EngineLink link{4};
    int num_wakes = 0;
    link.on_events([&] { ++num_wakes; });
    link.wake_io();
    EXPECT_EQ(num_wakes, 0);  // nothing was published
    for (int i = 0; i < 3; ++i) link.publish(TokenEvent{.id = RequestId{7}, .token = i});
    link.wake_io();
    link.wake_io();
    EXPECT_EQ(num_wakes, 1);
    std::vector<TokenEvent> events;
    link.drain_events(events);
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[2].token, 2);
    link.drain_events(events);
    EXPECT_EQ(events.size(), 3U);
}

TEST(EngineLink, ADrainEndsBesideAnEngineThatNeverPauses) {
    EngineLink link{4, 64};
    std::thread engine{[&] {
        for (int i = 0; !link.stopped(); ++i) link.publish(TokenEvent{.token = i});
    }};
    std::vector<TokenEvent> events;
    for (int drain = 0; drain < 100; ++drain) {
        const std::size_t before = events.size();
        link.drain_events(events);
        ASSERT_LE(events.size() - before, 64U);  // what the ring holds
    }
    link.stop();
    engine.join();
    for (std::size_t i = 0; i < events.size(); ++i)
        ASSERT_EQ(events[i].token, static_cast<std::int32_t>(i));
}

TEST(EngineLink, ASubmissionEndsTheEnginesSleep) {
    EngineLink link{4};
    std::thread io{[&] {
        Request one = request(1);
        ASSERT_TRUE(link.submit(one));
    }};
    Submission item;
    while (!link.next(item)) link.wait(60'000);
    EXPECT_EQ(std::get<Request>(item).id, RequestId{1});
    io.join();
}

TEST(EngineLink, StopEndsTheEnginesSleepAndItsPublishing) {
    EngineLink link{4, 2};
    std::thread io{[&] { link.stop(); }};
    while (!link.stopped()) link.wait(60'000);
    for (int i = 0; i < 10; ++i) link.publish(TokenEvent{.token = i});  // nobody drains
    io.join();
    EXPECT_TRUE(link.stopped());
}

TEST(EngineLink, EveryRequestIsAnsweredWhenBothEndsRun) {
    constexpr std::uint64_t kRequests = 2'000;
    EngineLink link{8, 16};
    std::thread engine{[&] {
        while (!link.stopped()) {
            Submission item;
            while (link.next(item)) {
                if (const auto* one = std::get_if<Request>(&item))
                    link.publish(TokenEvent{.id = one->id, .finish = FinishReason::stop});
            }
            link.wake_io();
            link.wait(1);
        }
    }};
    std::vector<TokenEvent> events;
    for (std::uint64_t i = 0; i < kRequests;) {
        Request one = request(i);
        if (link.submit(one))
            ++i;
        else
            std::this_thread::yield();
        link.drain_events(events);
    }
    while (events.size() < kRequests) link.drain_events(events);
    for (std::uint64_t i = 0; i < kRequests; ++i) ASSERT_EQ(events[i].id, RequestId{i});
    link.stop();
    engine.join();
}

}  // namespace
}  // namespace base
