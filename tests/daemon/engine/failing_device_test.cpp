// A device that fails ends the loop, and every request with it.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "daemon/base/error.hpp"
#include "tests/daemon/engine/cpu_device.hpp"
#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using base::Errc;
using base::FinishReason;
using engine_test::Loop;
using engine_test::random_request;

int samples_left = 0;

/// The cpu device, whose third draw fails.
const assay_device& failing_table() {
    static assay_ops ops = *engine_test::cpu_table().ops;
    ops.sample = [](void* self, const assay_tensor* logits, const assay_sample_row* rows, std::int32_t* token,
                    const assay_stream* s) -> assay_status {
        if (--samples_left < 0) return ASSAY_DEVICE_LOST;
        return engine_test::cpu_table().ops->sample(self, logits, rows, token, s);
    };
    static assay_device table = engine_test::cpu_table();
    table.ops = &ops;
    return table;
}

TEST(Engine, ADeviceThatFailsEndsEveryRequest) {
    samples_left = 2;
    const plugin::Device device{engine_test::no_host(), &failing_table(), 0, {}};
    support::TestLanes lanes;
    const plugin::Stream stream{device, lanes.get()};
    Sampler sampler{device, stream, 16, 64, 512};
    Loop::Settings settings;
    settings.max_num_seqs = 2;
    Loop loop{settings, &sampler};
    for (std::uint64_t id = 1; id <= 4; ++id) loop.submit(random_request(id, 5, 6, 20));
    loop.on_round = [&](std::size_t round) {
        if (round == 2) loop.submit(random_request(5, 5, 6, 20));
    };
    const std::string why = loop.run();
    EXPECT_NE(why.find("sample, plugin \"cpu\": status 6"), std::string::npos) << why;
    for (const auto& [id, o] : loop.outcomes) {
        EXPECT_EQ(o.finish, FinishReason::error) << id;
        EXPECT_EQ(o.error, Errc::device_lost) << id;
        EXPECT_EQ(o.detail, why) << id;
        EXPECT_EQ(o.tokens.size(), id <= 2 ? 2U : 0U) << id;
    }
    EXPECT_EQ(loop.outcomes.size(), 5U);
    EXPECT_EQ(loop.num_open, 0U);
    EXPECT_EQ(loop.metrics.device_errors.value(), 1U);
    EXPECT_EQ(loop.engine.num_live(), 0U);
}

TEST(Engine, WhoAsksAgainAfterAFailureIsToldUntilTheEnd) {
    samples_left = 0;
    const plugin::Device device{engine_test::no_host(), &failing_table(), 0, {}};
    support::TestLanes lanes;
    const plugin::Stream stream{device, lanes.get()};
    Sampler sampler{device, stream, 16, 64, 512};
    Loop loop{{}, &sampler};
    loop.link.on_events(nullptr);
    const auto submit = [&](std::uint64_t id) {
        base::Request request = random_request(id, 5, 6, 20);
        request.received = base::Clock::now();
        ASSERT_TRUE(loop.link.submit(request));
    };
    std::vector<base::TokenEvent> events;
    const auto num_ended = [&] {
        loop.link.drain_events(events);
        return std::count_if(events.begin(), events.end(), [](const auto& e) { return e.finish != FinishReason::none; });
    };
    submit(1);
    // Before anybody is answered: who asks again at once must find the state changed.
    std::string seen;
    const std::string why = loop.engine.run([&](const std::string& reason) {
        seen = reason;
        EXPECT_EQ(num_ended(), 0);
    });
    EXPECT_NE(seen, "");
    EXPECT_EQ(seen, why);
    EXPECT_EQ(num_ended(), 1);
    events.clear();

    std::thread refusing{[&] { loop.engine.refuse_until_stopped(why); }};
    for (std::uint64_t id = 2; id <= 5; ++id) submit(id);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (num_ended() < 4 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    loop.link.stop();
    refusing.join();
    ASSERT_EQ(events.size(), 4U);
    for (std::size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(events[i].id, base::RequestId{i + 2});
        EXPECT_EQ(events[i].finish, FinishReason::error);
        EXPECT_EQ(events[i].error, Errc::device_lost);
        EXPECT_EQ(events[i].detail, why);
    }
}

int copies_left = 0;

/// The cpu device, which copies a few times and then no more.
const assay_device& table_that_stops_copying() {
    static assay_device table = engine_test::cpu_table();
    table.copy = [](void* self, void* dst, const void* src, std::uint64_t bytes, const assay_stream* s) -> assay_status {
        if (--copies_left < 0) return ASSAY_DEVICE_LOST;
        return engine_test::cpu_table().copy(self, dst, src, bytes, s);
    };
    return table;
}

TEST(Engine, ACopyThatFailsIsAFailureAndNoToken) {
    // With none left, then one more each time: to the device, back from it, and in a later step.
    for (int allowed : {0, 1, 2, 3}) {
        copies_left = allowed;
        const plugin::Device device{engine_test::no_host(), &table_that_stops_copying(), 0, {}};
        support::TestLanes lanes;
        const plugin::Stream stream{device, lanes.get()};
        Sampler sampler{device, stream, 16, 64, 512};
        Loop loop{{}, &sampler};
        loop.submit(random_request(1, 5, 6, 500));
        const std::string why = loop.run();
        EXPECT_NE(why.find("copy to"), std::string::npos) << allowed << ": " << why;
        EXPECT_EQ(loop.outcomes.at(1).error, Errc::device_lost);
    }
}

TEST(Device, ACopyThatFailsThrows) {
    copies_left = 0;
    const plugin::Device device{engine_test::no_host(), &table_that_stops_copying(), 0, {}};
    support::TestLanes lanes;
    const plugin::Stream stream{device, lanes.get()};
    const plugin::Buffer buffer = device.alloc(64);
    const char bytes[64] = {};
    EXPECT_THROW(device.copy(buffer.data(), bytes, sizeof bytes, stream), base::AssayError);
}

}  // namespace
}  // namespace engine
