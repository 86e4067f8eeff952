// A device that fails ends the loop, and every request with it.

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace engine
