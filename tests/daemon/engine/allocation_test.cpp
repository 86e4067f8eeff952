// A steady decode step allocates nothing: not in the engine, not in the program, not in a plugin.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/daemon/engine/allocations.hpp"
#include "tests/daemon/engine/loop.hpp"

namespace engine {
namespace {

using engine_test::Loop;
using engine_test::random_request;

class Allocation : public testing::TestWithParam<const char*> {};

TEST_P(Allocation, AHundredDecodeStepsNeedNone) {
    constexpr std::size_t kFirst = 20, kLast = 120;
    Loop::Settings settings;
    settings.model = GetParam();
    settings.max_num_seqs = 4;
    Loop loop{settings};
    for (std::uint64_t id = 1; id <= 4; ++id) {
        auto r = random_request(id, 3, 5 + id, 150);
        r.sampling.temperature = id == 1 ? 0.0F : 0.8F;
        if (id == 3) {
            r.sampling.repetition_penalty = 1.1F;
            r.sampling.presence_penalty = 0.1F;
        }
        loop.submit(r);
    }
    for (std::uint64_t id = 1; id <= 4; ++id) loop.outcomes.at(id).tokens.reserve(200);
    std::uint64_t before = 0, after = 0;
    loop.on_round = [&](std::size_t round) {
        if (round == kFirst) before = engine_test::num_allocations();
        if (round == kLast) after = engine_test::num_allocations();
        // Under a debugger: who is it?
        if (std::getenv("ABORT_ON_ALLOCATION") != nullptr)
            engine_test::abort_on_allocation(round >= kFirst && round < kLast);
    };
    ASSERT_EQ(loop.run(), "");
    EXPECT_GT(before, 0U);
    EXPECT_EQ(after - before, 0U) << "allocations in " << kLast - kFirst << " steps";
    for (const auto& [id, o] : loop.outcomes) EXPECT_EQ(o.tokens.size(), 150U) << id;
}

TEST(Allocation, IsCounted) {
    const auto before = engine_test::num_allocations();
    const auto block = std::make_unique<std::vector<int>>(100);
    EXPECT_EQ(engine_test::num_allocations() - before, 2U);
}

INSTANTIATE_TEST_SUITE_P(Models, Allocation, testing::Values("llama-gqa", "glm-dsa-shared"), [](const auto& param) {
    std::string name = param.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace engine
