#include "daemon/server/dispatcher.hpp"

#include "daemon/metrics/feeds.hpp"
#include "daemon/server/session/flow.hpp"
#include "daemon/server/session/outbox.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace server {
namespace {

/// Keeps what it was told.
class Recorder final : public RequestListener {
public:
    void on_event(base::TokenEvent& event) override {
        events.push_back(event);
        if (events.size() == slow_at) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    std::size_t slow_at = 0;  // the event that takes longer than a turn
    std::vector<base::TokenEvent> events;
};

class DispatcherTest : public testing::Test {
protected:
    /// A request as far as the engine, which has taken it.
    base::RequestId submit(RequestListener& listener) {
        base::Request request;
        request.prompt = {1};
        const auto id = dispatcher.submit(request, listener);
        EXPECT_TRUE(id);
        base::Submission taken;
        EXPECT_TRUE(link.next(taken));
        return *id;
    }
    void publish(base::RequestId id, int n, base::FinishReason last = base::FinishReason::none) {
        for (int i = 0; i < n; ++i) {
            base::TokenEvent event;
            event.id = id;
            event.token = i;
            if (i + 1 == n) event.finish = last;
            link.publish(std::move(event));
        }
    }
    /// As the io thread does: again while there is more.
    void deliver_all() {
        while (dispatcher.deliver()) {
        }
    }

    base::EngineLink link{8};
    metrics::Registry registry;
    metrics::Server metrics{registry};
    Dispatcher dispatcher{link, metrics};
};

/// Tokens that the engine made `age` ago.
void publish_aged(base::EngineLink& link, base::RequestId id, int n, std::chrono::milliseconds age) {
    for (int i = 0; i < n; ++i) {
        base::TokenEvent event;
        event.id = id;
        event.at = base::Clock::now() - age;
        link.publish(std::move(event));
    }
}

TEST_F(DispatcherTest, IsBehindWhenManyTokensWaitForLong) {
    Recorder recorder;
    const auto id = submit(recorder);
    using std::chrono::milliseconds;
    publish_aged(link, id, 5000, milliseconds{0});
    deliver_all();
    EXPECT_FALSE(dispatcher.is_behind()) << "many, but none is old";
    publish_aged(link, id, 20, milliseconds{500});
    deliver_all();
    EXPECT_FALSE(dispatcher.is_behind()) << "old, but few";

    publish_aged(link, id, 1000, milliseconds{500});
    recorder.slow_at = recorder.events.size() + 1;  // longer than a turn, and not than one behind
    EXPECT_FALSE(dispatcher.deliver()) << "turns are longer while it is behind";
    EXPECT_TRUE(dispatcher.is_behind());

    Flow flow{dispatcher, metrics, 1 << 20};
    Outbox outbox{1 << 20, &flow};
    const auto serial = outbox.push({"[x]", 2});
    EXPECT_TRUE(outbox.merge(serial, "y"));
    publish_aged(link, id, 1, milliseconds{0});
    deliver_all();
    EXPECT_FALSE(dispatcher.is_behind());
    EXPECT_FALSE(outbox.merge(serial, "z")) << "an event a token again";
    EXPECT_EQ(outbox.pop(), "[xy]");
}

TEST_F(DispatcherTest, BringsEachEventToItsListener) {
    Recorder one, two;
    const auto a = submit(one), b = submit(two);
    EXPECT_NE(a, b);
    publish(a, 2);
    publish(b, 1, base::FinishReason::stop);
    deliver_all();
    EXPECT_EQ(one.events.size(), 2U);
    EXPECT_EQ(two.events.size(), 1U);
    EXPECT_EQ(dispatcher.num_live(), 1U);
}

TEST_F(DispatcherTest, WhatArrivesBehindALongBatchIsNotForgotten) {
    Recorder recorder;
    recorder.slow_at = 100;
    const auto id = submit(recorder);
    publish(id, 1500);
    EXPECT_TRUE(dispatcher.deliver());  // its turn is over before all are delivered
    EXPECT_LT(recorder.events.size(), 1500U);
    publish(id, 10, base::FinishReason::stop);  // its wake-up is the call that follows
    deliver_all();
    EXPECT_EQ(recorder.events.size(), 1510U);
    EXPECT_EQ(dispatcher.num_live(), 0U);
}

TEST_F(DispatcherTest, ACancelledRequestIsLiveUntilTheEngineSaysSo) {
    Recorder recorder;
    const auto id = submit(recorder);
    dispatcher.cancel(id, true);
    dispatcher.cancel(id, true);  // the second one is nothing
    base::Submission item;
    ASSERT_TRUE(link.next(item));
    EXPECT_TRUE(std::holds_alternative<base::Cancel>(item));
    EXPECT_FALSE(link.next(item));
    publish(id, 3);
    deliver_all();
    EXPECT_EQ(dispatcher.num_live(), 1U);
    publish(id, 1, base::FinishReason::cancelled);
    deliver_all();
    EXPECT_EQ(dispatcher.num_live(), 0U);
    EXPECT_TRUE(recorder.events.empty());
    EXPECT_EQ(metrics.wasted_tokens_disconnect.value(), 4U);
    const auto counts = metrics.cancel_seconds.snapshot().counts;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), 1U);
}

TEST_F(DispatcherTest, AFullQueueLeavesNothingBehind) {
    base::EngineLink full{2};
    Dispatcher small{full, metrics};
    Recorder recorder;
    base::Request a, b, c;
    a.prompt = b.prompt = c.prompt = {1};
    EXPECT_TRUE(small.submit(a, recorder));
    EXPECT_TRUE(small.submit(b, recorder));
    const auto refused = small.submit(c, recorder);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), base::Errc::queue_full);
    EXPECT_EQ(small.num_live(), 2U);
    EXPECT_EQ(c.prompt.size(), 1U);
}

}  // namespace
}  // namespace server
