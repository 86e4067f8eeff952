// Memory, streams, events, copies and conversions of the cpu device, and what its module says.

#include "cpu_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

namespace device_test {
namespace {

TEST(CpuModule, SaysWhatItIs) {
    const assay_module& m = cpu_module();
    EXPECT_EQ(m.magic, ASSAY_MAGIC);
    EXPECT_EQ(m.size, sizeof(assay_module));
    EXPECT_EQ(m.abi_major, ASSAY_ABI_MAJOR);
    EXPECT_EQ(m.abi_minor, ASSAY_ABI_MINOR);
    EXPECT_STREQ(m.id, "cpu");
    EXPECT_STREQ(m.kinds, ASSAY_KIND_DEVICE);
    ASSERT_EQ(m.open(nullptr, nullptr), ASSAY_OK);
    EXPECT_EQ(m.query("device/2"), nullptr);
    EXPECT_EQ(m.query(ASSAY_KIND_QUANT), nullptr);
    EXPECT_STREQ(cpu_table().kind, "cpu");
    EXPECT_TRUE(cpu_table().host_visible);
    EXPECT_EQ(cpu_table().collectives, nullptr);
    EXPECT_NE(std::string{cpu_table().collectives_absent}, "");
    m.close();
}

TEST(CpuOpen, DescribesTheMachine) {
    const CpuDevice device;
    const assay_device_ref& ref = device.ref();
    EXPECT_STREQ(ref.kind, "cpu");
    EXPECT_EQ(ref.arch, 0);
    EXPECT_GE(ref.num_units, 1);
    EXPECT_LE(ref.num_units, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
    EXPECT_GT(ref.total_bytes, std::uint64_t{1} << 28);
    std::uint64_t free_bytes = 0, total_bytes = 0;
    ASSERT_EQ(cpu_table().memory(device.self(), &free_bytes, &total_bytes), ASSAY_OK);
    EXPECT_EQ(total_bytes, ref.total_bytes);
    EXPECT_GT(free_bytes, 0u);
    EXPECT_LE(free_bytes, total_bytes);
    std::int32_t count = 0;
    ASSERT_EQ(cpu_table().count(&count, nullptr), ASSAY_OK);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(device.stream()->device->num_units, ref.num_units);
}

TEST(CpuOpen, TheNameSaysTheTier) {
    for (const std::string& tier : runnable_tiers()) {
        const CpuDevice device{tier.c_str()};
        EXPECT_TRUE(std::string{device.ref().name}.ends_with("(" + tier + ")"))
            << device.ref().name;
    }
    EXPECT_GE(runnable_tiers().size(), 2u) << "reference and baseline run everywhere";
}

TEST(CpuOpen, RefusesWhatItDoesNotKnow) {
    void* self = nullptr;
    assay_device_ref ref{};
    assay_error err = sdk::make_error();
    EXPECT_EQ(open_with("teir", "auto", &self, &ref, &err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string{err.text}.find("teir"), std::string::npos) << err.text;
    EXPECT_EQ(open_with("tier", "fast", &self, &ref, &err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string{err.text}.find("reference"), std::string::npos) << err.text;
    const assay_device_config second{sizeof second, 1, nullptr, 0};
    EXPECT_EQ(cpu_table().open(nullptr, &second, &self, &ref, &err), ASSAY_UNSUPPORTED);
    EXPECT_EQ(self, nullptr);
}

TEST(CpuMemory, IsAlignedWritableAndDistinct) {
    const CpuDevice device;
    std::vector<void*> blocks;
    for (const std::uint64_t bytes : {0ull, 1ull, 255ull, 257ull, 4ull << 20, (9ull << 20) + 1}) {
        void* block = nullptr;
        ASSERT_EQ(cpu_table().alloc(device.self(), ASSAY_SPACE_DEVICE, bytes, &block, nullptr),
                  ASSAY_OK);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0u);
        std::memset(block, 0x5a, bytes);
        EXPECT_EQ(std::count(blocks.begin(), blocks.end(), block), 0);
        blocks.push_back(block);
    }
    for (void* block : blocks) cpu_table().free(device.self(), ASSAY_SPACE_DEVICE, block);
}

TEST(CpuMemory, RefusesMoreThanThereIs) {
    const CpuDevice device;
    assay_error err = sdk::make_error();
    for (const std::uint64_t bytes : {std::uint64_t{1} << 62, UINT64_MAX, UINT64_MAX - 300}) {
        void* block = &err;
        EXPECT_EQ(cpu_table().alloc(device.self(), ASSAY_SPACE_HOST, bytes, &block, &err),
                  ASSAY_NO_MEMORY);
        EXPECT_EQ(block, nullptr);
    }
    void* block;
    EXPECT_EQ(cpu_table().alloc(device.self(), 3, 16, &block, &err), ASSAY_INVALID);
}

TEST(CpuStream, AlwaysHasLanes) {
    const CpuDevice device;
    assay_stream s{};
    ASSERT_EQ(cpu_table().stream_create(device.self(), 0, nullptr, &s, nullptr), ASSAY_OK);
    ASSERT_NE(s.lanes, nullptr);
    EXPECT_EQ(s.lanes->width, 1u);
    EXPECT_EQ(s.native, nullptr);
    int sum = 0;
    s.lanes->run(
        s.lanes, 5,
        [](void* arg, std::uint32_t i, std::uint32_t lane) {
            *static_cast<int*>(arg) += static_cast<int>(i + lane);
        },
        &sum);
    EXPECT_EQ(sum, 10);
    EXPECT_EQ(cpu_table().stream_sync(device.self(), &s, nullptr), ASSAY_OK);
    cpu_table().stream_destroy(device.self(), &s);
}

TEST(CpuEvents, AreDoneAndTellTheTimeBetweenThem) {
    const CpuDevice device;
    const assay_device& d = cpu_table();
    void *from = nullptr, *to = nullptr;
    ASSERT_EQ(d.event_create(device.self(), &from, nullptr), ASSAY_OK);
    ASSERT_EQ(d.event_create(device.self(), &to, nullptr), ASSAY_OK);
    double us = -1;
    EXPECT_EQ(d.event_elapsed_us(device.self(), from, to, &us), ASSAY_INVALID)
        << "not recorded yet";
    ASSERT_EQ(d.event_record(device.self(), from, device.stream()), ASSAY_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    ASSERT_EQ(d.event_record(device.self(), to, device.stream()), ASSAY_OK);
    bool done = false;
    ASSERT_EQ(d.event_done(device.self(), to, &done, nullptr), ASSAY_OK);
    EXPECT_TRUE(done);
    EXPECT_EQ(d.event_sync(device.self(), to, 0, nullptr), ASSAY_OK);
    EXPECT_EQ(d.event_wait(device.self(), device.stream(), to), ASSAY_OK);
    ASSERT_EQ(d.event_elapsed_us(device.self(), from, to, &us), ASSAY_OK);
    EXPECT_GE(us, 2000);
    EXPECT_EQ(d.event_record(device.self(), nullptr, device.stream()), ASSAY_INVALID);
    d.event_destroy(device.self(), from);
    d.event_destroy(device.self(), to);
}

TEST(CpuBytes, CopyAndFillTouchTheirRangeAndNoMore) {
    for (const std::uint32_t lanes : {1u, 4u}) {
        const CpuDevice device{"auto", lanes};
        constexpr std::size_t kBytes = (5u << 20) + 13;
        std::vector<unsigned char> from(kBytes), to(kBytes + 2, 0xee);
        Rng rng{fresh_seed()};
        for (unsigned char& b : from) b = static_cast<unsigned char>(rng());
        ASSERT_EQ(
            cpu_table().copy(device.self(), to.data() + 1, from.data(), kBytes, device.stream()),
            ASSAY_OK);
        EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 1));
        EXPECT_EQ(to.front(), 0xee);
        EXPECT_EQ(to.back(), 0xee);
        ASSERT_EQ(cpu_table().fill(device.self(), to.data() + 1, 0xff, kBytes, device.stream()),
                  ASSAY_OK);
        EXPECT_EQ(std::count(to.begin(), to.end(), 0xff), static_cast<std::ptrdiff_t>(kBytes));
        EXPECT_EQ(to.front(), 0xee);
        EXPECT_EQ(to.back(), 0xee);
        EXPECT_EQ(cpu_table().copy(device.self(), nullptr, nullptr, 0, device.stream()), ASSAY_OK);
        EXPECT_EQ(cpu_table().copy(device.self(), nullptr, from.data(), 1, device.stream()),
                  ASSAY_INVALID);
    }
}

// ---- conversions -----------------------------------------------------------------------------

template <class To, class From>
std::vector<To> convert(const CpuDevice& device, const std::vector<From>& from,
                        assay_dtype from_type, assay_dtype to_type) {
    std::vector<To> to(from.size());
    const assay_tensor x = sdk::make_tensor(from.data(), from_type, from.size());
    const assay_tensor out = sdk::make_tensor(to.data(), to_type, to.size());
    EXPECT_EQ(device.ops().copy(device.self(), &x, &out, device.stream()), ASSAY_OK);
    return to;
}

std::vector<std::uint16_t> all_halves() {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    return all;
}

class Convert : public testing::TestWithParam<std::string> {
protected:
    CpuDevice device_{GetParam().c_str(), 2};
};

// The value of a 16-bit float by its definition.
double value_of(std::uint16_t h, int fraction_bits) {
    const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1);
    const int fraction = h & ((1 << fraction_bits) - 1);
    const double sign = (h & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

TEST_P(Convert, EveryHalfWidensToItsValueAndComesBack) {
    for (const auto& [dtype, fraction_bits] : {std::pair{ASSAY_F16, 10}, {ASSAY_BF16, 7}}) {
        const std::vector<std::uint16_t> all = all_halves();
        const auto wide = convert<float>(device_, all, dtype, ASSAY_F32);
        const auto back = convert<std::uint16_t>(device_, wide, ASSAY_F32, dtype);
        for (std::size_t i = 0; i < all.size(); ++i) {
            const double want = value_of(all[i], fraction_bits);
            if (std::isnan(want)) {
                EXPECT_TRUE(std::isnan(wide[i])) << i;
                EXPECT_TRUE(std::isnan(value_of(back[i], fraction_bits))) << i;
            } else {
                EXPECT_EQ(wide[i], static_cast<float>(want)) << i;
                EXPECT_EQ(back[i], all[i]) << i;
            }
        }
    }
}

TEST_P(Convert, NarrowsToTheNearestAndOfTwoToTheEven) {
    Rng rng{fresh_seed()};
    for (const auto& [dtype, fraction_bits] : {std::pair{ASSAY_F16, 10}, {ASSAY_BF16, 7}}) {
        std::vector<float> x;
        for (std::uint32_t h = 0; h < 0x7f00; h += 7) {  // midpoints, and their neighbours
            const double low = value_of(static_cast<std::uint16_t>(h), fraction_bits);
            const double high = value_of(static_cast<std::uint16_t>(h + 1), fraction_bits);
            if (!std::isfinite(high)) continue;
            const float middle = static_cast<float>((low + high) / 2);
            for (const float v :
                 {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e38f)})
                x.insert(x.end(), {v, -v});
        }
        for (int i = 0; i < 20000; ++i) {
            const float any = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
            if (std::isfinite(any)) x.push_back(any);
        }
        x.insert(x.end(),
                 {65519.9f, 65520.0f, 3.4e38f, HUGE_VALF, -HUGE_VALF, 0.0f, -0.0f, 1e-45f});
        const auto got = convert<std::uint16_t>(device_, x, ASSAY_F32, dtype);
        const std::uint16_t inf = static_cast<std::uint16_t>(0x7fff & ~((1 << fraction_bits) - 1));
        for (std::size_t i = 0; i < x.size(); ++i) {
            // The neighbours of the result are no nearer, and as near only if the result is even.
            const std::uint16_t magnitude = got[i] & 0x7fff;
            ASSERT_EQ((got[i] & 0x8000) != 0, std::signbit(x[i])) << x[i];
            ASSERT_LE(magnitude, inf) << x[i];
            const double a = std::abs(double{x[i]});
            const auto at = [&](int h) {  // the step after the largest stands for infinity
                return h < inf ? value_of(static_cast<std::uint16_t>(h), fraction_bits)
                               : 2 * value_of(static_cast<std::uint16_t>(inf - 1), fraction_bits) -
                                     value_of(static_cast<std::uint16_t>(inf - 2), fraction_bits);
            };
            const bool is_even = magnitude % 2 == 0;
            if (magnitude < inf) {
                const double half = (at(magnitude) + at(magnitude + 1)) / 2;
                ASSERT_TRUE(a < half || (is_even && a == half)) << x[i] << " to " << magnitude;
            }
            if (magnitude > 0) {
                const double half = (at(magnitude) + at(magnitude - 1)) / 2;
                ASSERT_TRUE(a > half || (is_even && a == half)) << x[i] << " to " << magnitude;
            }
        }
    }
}

TEST_P(Convert, AnyStridesAndBetweenTheHalves) {
    // [3, 4] out of a transposed f16 array into every other element of a bf16 array.
    std::vector<std::uint16_t> from(12), to(40, 0xabcd);
    for (std::size_t i = 0; i < 12; ++i)
        from[i] = convert<std::uint16_t>(device_, std::vector<float>{static_cast<float>(i) - 3.5f},
                                         ASSAY_F32, ASSAY_F16)[0];
    assay_tensor x = sdk::make_tensor(from.data(), ASSAY_F16, 3, 4);
    x.stride[0] = 1;
    x.stride[1] = 3;
    assay_tensor out = sdk::make_tensor(to.data(), ASSAY_BF16, 3, 4);
    out.stride[0] = 13;
    out.stride[1] = 2;
    ASSERT_EQ(device_.ops().copy(device_.self(), &x, &out, device_.stream()), ASSAY_OK);
    int written = 0;
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 4; ++j, ++written)
            EXPECT_EQ(value_of(to[i * 13 + j * 2], 7), static_cast<double>(i + 3 * j) - 3.5);
    EXPECT_EQ(std::count(to.begin(), to.end(), 0xabcd), 40 - written);
}

INSTANTIATE_TEST_SUITE_P(Tiers, Convert, testing::ValuesIn(runnable_tiers()),
                         [](const auto& param) { return param.param; });

TEST(Copy, KeepsIntegersAndRefusesToTurnThemIntoFloats) {
    const CpuDevice device;
    const std::vector<std::int32_t> ids{1, -1, 1 << 30, 0x7fc00001};
    EXPECT_EQ(convert<std::int32_t>(device, ids, ASSAY_I32, ASSAY_I32), ids);
    float out[4];
    const assay_tensor x = sdk::make_tensor(ids.data(), ASSAY_I32, 4);
    const assay_tensor to = sdk::make_tensor(out, ASSAY_F32, 4);
    EXPECT_EQ(device.ops().copy(device.self(), &x, &to, device.stream()), ASSAY_UNSUPPORTED);
}

TEST(GatherRows, TakesRowsInOrderAndMarksThoseThatAreNotThere) {
    const CpuDevice device{"auto", 3};
    Rng rng{fresh_seed()};
    Matrix x{normals(rng, 50), 10, 5, 2}, out{6, 5, 3};
    const std::int32_t rows[] = {9, 0, 0, 10, -1, 4};
    const assay_tensor from = x.view(), to = out.view();
    ASSERT_EQ(device.ops().gather_rows(device.self(), &from, rows, &to, device.stream()), ASSAY_OK);
    for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t j = 0; j < 5; ++j) {
            if (rows[i] >= 0 && rows[i] < 10)
                EXPECT_EQ(out.row(i)[j], x.row(rows[i])[j]);
            else
                EXPECT_TRUE(std::isnan(out.row(i)[j]) && !is_sentinel(out.row(i)[j]));
        }
    EXPECT_EQ(out.first_broken_guard(), -1);
}

}  // namespace
}  // namespace device_test
