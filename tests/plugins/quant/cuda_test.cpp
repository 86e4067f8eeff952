// What the cuda image has and the host's has not: golden blocks decoded on the device, in both layouts.

#include "tests/plugins/quant/support.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace {

using quant_test::golden;

TEST(CudaDecode, EveryFormatEqualsTheGoldenFloatsBitForBit) {
    const quant_test::Backend backend{"mma"};
    const support::TestLanes lanes{1};
    const assay_stream stream = quant_test::stream(lanes.get());
    for (const ggml::Format& format : ggml::formats()) {
        SCOPED_TRACE(format.abi.id);
        const auto blocks = golden(std::string{format.abi.id} + ".blocks.bin");
        const auto expected = golden(std::string{format.abi.id} + ".f32.bin");
        // One long row: the files hold whole blocks.
        const auto cols = static_cast<std::int64_t>(expected.size() / 4);
        ASSERT_GT(cols, 0);
        assay_weight w{};
        w.size = sizeof w;
        w.format = format.abi.id;
        w.layout = ASSAY_LAYOUT_STORED;
        w.experts = w.rows = 1;
        w.cols = cols;
        w.data = blocks.data();
        w.data_bytes = blocks.size();
        std::vector<float> decoded(static_cast<std::size_t>(cols), -1.0f);
        const std::int32_t id = 0;
        const assay_tensor out = sdk::make_tensor(decoded.data(), ASSAY_F32, 1, cols);
        assay_error err = sdk::make_error();
        ASSERT_EQ(quant_test::image().rows(backend.self(), &w, &id, 1, &out, &stream, &err), ASSAY_OK) << err.text;
        for (std::size_t i = 0; i < decoded.size(); ++i)
            ASSERT_EQ(std::memcmp(&decoded[i], &expected[4 * i], 4), 0) << "element " << i << ": " << decoded[i];
    }
}

TEST(CudaDecode, RandomBlocksEqualTheHostsDecoderBitForBit) {
    std::mt19937 rng{std::random_device{}()};
    const quant_test::Backend backend{"mma"};
    const support::TestLanes lanes{1};
    const assay_stream stream = quant_test::stream(lanes.get());
    for (const ggml::Format& format : ggml::formats()) {
        SCOPED_TRACE(format.abi.id);
        const std::int64_t cols = format.abi.block_cols == 1 ? 77 : 768;
        const quant_test::Weights w{format.abi.id, 2, 9, cols, rng};
        std::vector<std::int32_t> ids(18);
        std::iota(ids.begin(), ids.end(), 0);
        std::vector<float> decoded(static_cast<std::size_t>(18 * cols), -1.0f);
        const assay_tensor out = sdk::make_tensor(decoded.data(), ASSAY_F32, 18, cols);
        assay_error err = sdk::make_error();
        ASSERT_EQ(quant_test::image().rows(backend.self(), &w.abi, ids.data(), 18, &out, &stream, &err), ASSAY_OK) << err.text;
        EXPECT_EQ(std::memcmp(decoded.data(), w.decoded.data(), decoded.size() * sizeof(float)), 0);
    }
}

}  // namespace
