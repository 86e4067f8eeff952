// The definitions against golden blocks, bit for bit, and the scan for bad scales.

#include "tests/plugins/quant/support.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace {

std::vector<std::uint8_t> read_file(const std::string& name) {
    std::ifstream file{std::string{ASSAY_TEST_DATA} + "/quants/" + name, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(QuantDecode, EveryFormatEqualsTheGoldenFloatsBitForBit) {
    ASSERT_GE(ggml::formats().size(), 16u);
    for (const ggml::Format& format : ggml::formats()) {
        SCOPED_TRACE(format.abi.id);
        const auto blocks = read_file(std::string{format.abi.id} + ".blocks.bin");
        const auto expected = read_file(std::string{format.abi.id} + ".f32.bin");
        const std::size_t num_blocks = blocks.size() / format.abi.block_bytes;
        ASSERT_GT(num_blocks, 0u);
        ASSERT_EQ(expected.size(), num_blocks * format.abi.block_cols * 4);
        std::vector<float> decoded(num_blocks * format.abi.block_cols, -1.0f);
        format.decode(blocks.data(), static_cast<std::int64_t>(num_blocks), decoded.data());
        for (std::size_t i = 0; i < decoded.size(); ++i)
            ASSERT_EQ(std::memcmp(&decoded[i], &expected[4 * i], 4), 0)
                << "element " << i << ": " << decoded[i];
    }
}

TEST(QuantDecode, RowsGathersAnyRowInEveryOutputType) {
    std::mt19937 rng{std::random_device{}()};
    const quant_test::Weights w{"q4_k", 2, 3, 512, rng};
    const std::int32_t ids[] = {5, 0, 3, 3, -1, 6};
    const support::TestLanes lanes{3};
    const assay_stream stream = quant_test::stream(lanes.get());
    const quant_test::Backend backend{quant_test::tiers().front()};
    for (const assay_dtype dtype : {ASSAY_F32, ASSAY_F16, ASSAY_BF16}) {
        SCOPED_TRACE(sdk::dtype_name(dtype));
        std::vector<std::uint8_t> out(6 * 520 * 4, 0xee);
        assay_tensor t = sdk::make_tensor(out.data(), dtype, 6, 512);
        t.stride[0] = 520;
        assay_error err = sdk::make_error();
        ASSERT_EQ(quant_test::image().rows(backend.self(), &w.abi, ids, 6, &t, &stream, &err),
                  ASSAY_OK)
            << err.text;
        const auto element_bytes = static_cast<std::size_t>(sdk::dtype_bytes(dtype));
        for (std::size_t i = 0; i < 6; ++i) {
            for (std::size_t c = 0; c < 520; ++c) {
                const std::uint8_t* at = out.data() + (i * 520 + c) * element_bytes;
                if (c >= 512) {
                    ASSERT_EQ(at[0], 0xee) << "beyond row " << i;
                    continue;
                }
                float got = 0;
                std::uint16_t bits = 0;
                std::memcpy(dtype == ASSAY_F32 ? static_cast<void*>(&got) : &bits, at,
                            element_bytes);
                if (dtype == ASSAY_F16) ggml::find_format("f16")->decode(at, 1, &got);
                if (dtype == ASSAY_BF16) ggml::find_format("bf16")->decode(at, 1, &got);
                if (ids[i] < 0 || ids[i] >= 6) {
                    ASSERT_NE(got, got) << "row " << i;
                    continue;
                }
                const float want = w.row(0, ids[i])[c];
                // Half a step of 11 or 8 significant bits; below the normal range of f16, of 2^-24.
                const float step = dtype == ASSAY_F32   ? 0.0f
                                   : dtype == ASSAY_F16 ? 0x1p-11f
                                                        : 0x1p-8f;
                ASSERT_NEAR(got, want,
                            std::abs(want) * step + (dtype == ASSAY_F16 ? 0x1p-25f : 0.0f));
            }
        }
    }
}

TEST(QuantScan, FindsTheFirstBlockWithABadScale) {
    std::mt19937 rng{std::random_device{}()};
    for (const ggml::Format& format : ggml::formats()) {
        SCOPED_TRACE(format.abi.id);
        quant_test::Weights w{format.abi.id, 1, 16, 256, rng};
        const std::uint64_t num_blocks = w.bytes.size() / format.abi.block_bytes;
        std::int64_t bad = 99;
        ASSERT_EQ(quant_test::image().scan(format.abi.id, w.bytes.data(), num_blocks, &bad),
                  ASSAY_OK);
        EXPECT_EQ(bad, -1);
        // All bits set is a NaN in every kind of scale.
        const std::int64_t target = static_cast<std::int64_t>(num_blocks) - 3;
        std::memset(w.bytes.data() + target * format.abi.block_bytes, 0xff,
                    2 * format.abi.block_bytes);
        ASSERT_EQ(quant_test::image().scan(format.abi.id, w.bytes.data(), num_blocks, &bad),
                  ASSAY_OK);
        EXPECT_EQ(bad, target);
    }
    std::int64_t bad = 0;
    EXPECT_EQ(quant_test::image().scan("q9_z", nullptr, 0, &bad), ASSAY_UNSUPPORTED);
}

}  // namespace
