// Two threads: a cancel that follows its request at once is never lost, whichever the engine sees
// first.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::FinishReason;

TEST(Engine, ACancelRightBehindItsRequestIsNeverLost) {
    constexpr std::uint64_t kRequests = 100;
    engine_test::Loop loop{{}};
    std::atomic<std::uint32_t> wakes{0};
    loop.link.on_events([&] { wakes.fetch_add(1), wakes.notify_one(); });
    std::thread thread{[&] { EXPECT_EQ(loop.engine.run(), ""); }};

    std::vector<base::TokenEvent> events;
    for (std::uint64_t id = 1; id <= kRequests; ++id) {
        auto r = engine_test::random_request(id, 1, 3, 400);
        r.received = base::Clock::now();
        while (!loop.link.submit(r)) std::this_thread::yield();
        loop.link.cancel(r.id);
        for (bool ended = false; !ended;) {
            const std::uint32_t seen = wakes.load();
            events.clear();
            loop.link.drain_events(events);
            for (const auto& e : events) {
                if (e.finish == FinishReason::none) continue;
                EXPECT_EQ(e.id, r.id);
                EXPECT_EQ(e.finish, FinishReason::cancelled);
                ended = true;
            }
            if (!ended) wakes.wait(seen);
        }
    }
    loop.link.stop();
    thread.join();
    EXPECT_EQ(loop.engine.num_live(), 0U);
}

}  // namespace
}  // namespace engine
