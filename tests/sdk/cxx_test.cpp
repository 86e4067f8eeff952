#include "cxx/plugin.hpp"
#include "tests/support/lanes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace {

TEST(Fail, FillsTheCallersBufferAndReturnsTheCode) {
    assay_error err = sdk::make_error();
    EXPECT_EQ(err.size, sizeof(assay_error));
    EXPECT_EQ(sdk::fail(&err, ASSAY_IO, "%s: byte %d", "part 2", 7), ASSAY_IO);
    EXPECT_EQ(err.code, ASSAY_IO);
    EXPECT_STREQ(err.text, "part 2: byte 7");
    EXPECT_EQ(sdk::fail(nullptr, ASSAY_CORRUPT, "no one listens"), ASSAY_CORRUPT);
}

TEST(Fail, CutsWordsThatDoNotFit) {
    assay_error err = sdk::make_error();
    const std::string words(2000, 'x');
    sdk::fail(&err, ASSAY_INTERNAL, "%s", words.c_str());
    EXPECT_EQ(std::strlen(err.text), sizeof err.text - 1);
}

TEST(Guard, TurnsEachExceptionIntoAStatusAndWords) {
    assay_error err = sdk::make_error();
    EXPECT_EQ(sdk::guard(&err, [] {}), ASSAY_OK);
    EXPECT_EQ(sdk::guard(&err, [] { return assay_status{ASSAY_TIMEOUT}; }), ASSAY_TIMEOUT);
    EXPECT_EQ(sdk::guard(&err,
                         [] {
                             throw sdk::Error{ASSAY_UNSUPPORTED, "no sm_80"};
                         }),
              ASSAY_UNSUPPORTED);
    EXPECT_STREQ(err.text, "no sm_80");
    EXPECT_EQ(sdk::guard(&err, [] { throw std::bad_alloc{}; }), ASSAY_NO_MEMORY);
    EXPECT_EQ(sdk::guard(&err, [] { throw std::runtime_error{"percent %s"}; }), ASSAY_INTERNAL);
    EXPECT_STREQ(err.text, "percent %s") << "words are not a format";
    EXPECT_EQ(sdk::guard(&err, [] { throw 7; }), ASSAY_INTERNAL);
    EXPECT_EQ(sdk::guard(nullptr, [] { throw 7; }), ASSAY_INTERNAL);
}

TEST(Options, AreFoundAndUnknownOnesRefused) {
    const assay_option options[] = {{"tier", "reference"}, {"depth", "3"}};
    const assay_device_config config{sizeof config, 0, options, 2};
    EXPECT_EQ(sdk::option(config, "tier", "auto"), "reference");
    EXPECT_EQ(sdk::option(config, "absent", "auto"), "auto");
    EXPECT_NO_THROW(sdk::check_options(config, {"depth", "tier"}));
    try {
        sdk::check_options(config, {"tier", "width"});
        FAIL() << "depth is not known";
    } catch (const sdk::Error& e) {
        EXPECT_EQ(e.code(), ASSAY_UNSUPPORTED);
        EXPECT_NE(std::string{e.what()}.find("depth"), std::string::npos) << e.what();
        EXPECT_NE(std::string{e.what()}.find("width"), std::string::npos) << e.what();
    }
}

TEST(Tensor, IsDenseRowMajor) {
    float data[24] = {};
    const assay_tensor t = sdk::make_tensor(data, ASSAY_F32, 2, 3, 4);
    EXPECT_EQ(t.rank, 3);
    EXPECT_EQ(t.stride[0], 12);
    EXPECT_EQ(t.stride[1], 4);
    EXPECT_EQ(t.stride[2], 1);
    EXPECT_EQ(sdk::num_elements(t), 24);
    EXPECT_EQ(sdk::at<float>(t, 1), data + 12);
    EXPECT_EQ(sdk::at<float>(t, 1, 2), data + 20);
    EXPECT_EQ(sdk::num_elements(sdk::make_tensor(nullptr, ASSAY_F32, 0, 4)), 0);
}

TEST(Dtype, HasItsSizeAndName) {
    EXPECT_EQ(sdk::dtype_bytes(ASSAY_F64), 8);
    EXPECT_EQ(sdk::dtype_bytes(ASSAY_I32), 4);
    EXPECT_EQ(sdk::dtype_bytes(ASSAY_BF16), 2);
    EXPECT_EQ(sdk::dtype_bytes(ASSAY_F8_E4M3), 1);
    EXPECT_STREQ(sdk::dtype_name(ASSAY_BF16), "bf16");
    EXPECT_STREQ(sdk::dtype_name(ASSAY_F64), "f64");
    EXPECT_STREQ(sdk::dtype_name(99), "?");
    EXPECT_STREQ(sdk::dtype_name(-1), "?");
}

TEST(ParallelFor, CallsEachItemOnce) {
    for (const std::uint32_t width : {1u, 4u}) {
        support::TestLanes lanes{width};
        for (const std::int64_t n : {0, 1, 2, 1000}) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
            sdk::parallel_for(lanes.get(), n, [&](std::uint32_t i, std::uint32_t lane) {
                EXPECT_LT(lane, width);
                ++seen[i];
            });
            for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
        }
    }
    int sum = 0;
    sdk::parallel_for(nullptr, 4,
                      [&](std::uint32_t i, std::uint32_t) { sum += static_cast<int>(i); });
    EXPECT_EQ(sum, 6) << "without lanes the caller does it";
    sdk::parallel_for(nullptr, -3, [&](std::uint32_t, std::uint32_t) { sum = 0; });
    EXPECT_EQ(sum, 6);
}

TEST(ParallelFor, NoTwoItemsShareALaneAtOnce) {
    support::TestLanes lanes{4};
    std::atomic<int> busy[4] = {};
    std::atomic<int> num_clashes{0};
    sdk::parallel_for(lanes.get(), 5000, [&](std::uint32_t, std::uint32_t lane) {
        if (busy[lane].fetch_add(1) != 0) ++num_clashes;
        busy[lane].fetch_sub(1);
    });
    EXPECT_EQ(num_clashes.load(), 0);
}

struct Written {
    std::string text;
    int level = -1;
};

TEST(Log, GoesToTheHostsServiceWhereThereIsOne) {
    static Written written;
    static const assay_log service{sizeof(assay_log),
                                   [](const assay_host*, std::int32_t level, const char* text) {
                                       written = {text, level};
                                   }};
    assay_host host{};
    host.size = sizeof host;
    host.service = [](const assay_host*, const char* id) -> const void* {
        return std::strcmp(id, ASSAY_SERVICE_LOG) == 0 ? &service : nullptr;
    };
    sdk::log(&host, ASSAY_WARN, "hello");
    EXPECT_EQ(written.text, "hello");
    EXPECT_EQ(written.level, ASSAY_WARN);
    host.service = [](const assay_host*, const char*) -> const void* { return nullptr; };
    sdk::log(&host, ASSAY_ERROR, "no one");
    sdk::log(nullptr, ASSAY_ERROR, "no one");
    EXPECT_EQ(written.text, "hello");
}

}  // namespace
