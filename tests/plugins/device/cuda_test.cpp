// Memory, streams, events and graphs of the cuda device, and what it says without a GPU.

#include "cpu_device.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

namespace device_test {
namespace {

using support::CudaDevice;

const assay_device& table() {
    return CudaDevice::table();
}

TEST(CudaMemory, SpacesAreAlignedAndCopiesArriveBothWays) {
    const CpuDevice device;
    constexpr std::size_t kBytes = (5u << 20) + 13;
    void *on_device = nullptr, *pinned = nullptr;
    ASSERT_EQ(table().alloc(device.self(), ASSAY_SPACE_DEVICE, kBytes, &on_device, nullptr), ASSAY_OK);
    ASSERT_EQ(table().alloc(device.self(), ASSAY_SPACE_PINNED, kBytes, &pinned, nullptr), ASSAY_OK);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(on_device) % 256, 0u);
    auto* bytes = static_cast<unsigned char*>(pinned);
    Rng rng{fresh_seed()};
    std::vector<unsigned char> want(kBytes);
    for (unsigned char& b : want) b = static_cast<unsigned char>(rng());
    std::copy(want.begin(), want.end(), bytes);
    ASSERT_EQ(table().copy(device.self(), on_device, pinned, kBytes, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().fill(device.self(), pinned, 0, kBytes, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().copy(device.self(), pinned, on_device, kBytes, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().stream_sync(device.self(), device.stream(), nullptr), ASSAY_OK);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), bytes));
    table().free(device.self(), ASSAY_SPACE_DEVICE, on_device);
    table().free(device.self(), ASSAY_SPACE_PINNED, pinned);
}

TEST(CudaMemory, RefusesMoreThanThereIs) {
    const CpuDevice device;
    for (const std::int32_t space : {ASSAY_SPACE_DEVICE, ASSAY_SPACE_HOST}) {
        assay_error err = sdk::make_error();
        void* block = &err;
        EXPECT_EQ(table().alloc(device.self(), space, std::uint64_t{1} << 50, &block, &err), ASSAY_NO_MEMORY) << err.text;
        EXPECT_EQ(block, nullptr);
    }
}

TEST(CudaEvents, KnowWhatIsDoneAndTheTimeBetween) {
    const CpuDevice device;
    void *from = nullptr, *to = nullptr, *block = nullptr;
    ASSERT_EQ(table().event_create(device.self(), &from, nullptr), ASSAY_OK);
    ASSERT_EQ(table().event_create(device.self(), &to, nullptr), ASSAY_OK);
    double us = -1;
    EXPECT_NE(table().event_elapsed_us(device.self(), from, to, &us), ASSAY_OK) << "not recorded yet";
    constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
    ASSERT_EQ(table().alloc(device.self(), ASSAY_SPACE_DEVICE, kBytes, &block, nullptr), ASSAY_OK);
    ASSERT_EQ(table().event_record(device.self(), from, device.stream()), ASSAY_OK);
    for (int i = 0; i < 50; ++i) ASSERT_EQ(table().fill(device.self(), block, i, kBytes, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().event_record(device.self(), to, device.stream()), ASSAY_OK);
    bool done = true;
    ASSERT_EQ(table().event_done(device.self(), to, &done, nullptr), ASSAY_OK);
    EXPECT_FALSE(done) << "50 GiB are not written in the meantime";
    EXPECT_EQ(table().event_sync(device.self(), to, 1, nullptr), ASSAY_TIMEOUT);
    EXPECT_EQ(table().event_sync(device.self(), to, 10'000'000, nullptr), ASSAY_OK);
    ASSERT_EQ(table().event_elapsed_us(device.self(), from, to, &us), ASSAY_OK);
    EXPECT_GT(us, 1000);
    table().free(device.self(), ASSAY_SPACE_DEVICE, block);
    table().event_destroy(device.self(), from);
    table().event_destroy(device.self(), to);
}

TEST(CudaGraphs, AGraphRepeatsWhatWasRecorded) {
    const CpuDevice device;
    constexpr std::int64_t kN = 1000;
    void* memory = nullptr;
    ASSERT_EQ(table().alloc(device.self(), ASSAY_SPACE_DEVICE, kN * 4, &memory, nullptr), ASSAY_OK);
    std::vector<float> values(kN);
    std::iota(values.begin(), values.end(), 1.0f);
    ASSERT_EQ(table().copy(device.self(), memory, values.data(), kN * 4, device.stream()), ASSAY_OK);
    const assay_tensor x = sdk::make_tensor(memory, ASSAY_F32, 1, kN);
    assay_error err = sdk::make_error();
    void* graph = nullptr;
    ASSERT_EQ(table().capture_begin(device.self(), device.stream(), &err), ASSAY_OK) << err.text;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(table().ops->scale(device.self(), &x, 2.0f, &x, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().capture_end(device.self(), device.stream(), &graph, &err), ASSAY_OK) << err.text;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(table().graph_launch(device.self(), graph, device.stream()), ASSAY_OK);
    std::vector<float> got(kN);
    ASSERT_EQ(table().copy(device.self(), got.data(), memory, kN * 4, device.stream()), ASSAY_OK);
    ASSERT_EQ(table().stream_sync(device.self(), device.stream(), nullptr), ASSAY_OK);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 64.0f * values[i]) << i;
    table().graph_destroy(device.self(), graph);
    table().free(device.self(), ASSAY_SPACE_DEVICE, memory);
}

// Where there is a GPU and where there is none.
TEST(CudaModule, LoadsAndSaysWhatItIsAndWhatIsMissing) {
    const assay_module& m = CudaDevice::module();
    EXPECT_EQ(m.magic, ASSAY_MAGIC);
    EXPECT_STREQ(m.id, "cuda");
    EXPECT_STREQ(table().kind, "cuda");
    EXPECT_FALSE(table().host_visible);
    std::int32_t count = -1;
    assay_error err = sdk::make_error();
    ASSERT_EQ(table().count(&count, &err), ASSAY_OK);
    ASSERT_GE(count, 0);
    EXPECT_EQ(count == 0, err.text[0] != '\0') << err.text;
    const assay_device_config config{sizeof config, count, nullptr, 0};
    void* self = nullptr;
    assay_device_ref ref{};
    EXPECT_EQ(table().open(nullptr, &config, &self, &ref, &err), ASSAY_UNSUPPORTED);
    EXPECT_NE(err.text[0], '\0');
}

}  // namespace
}  // namespace device_test
