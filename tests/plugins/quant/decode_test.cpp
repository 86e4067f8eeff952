// The definitions against golden blocks, bit for bit, and the scan for bad scales.

#include "plugins/quant/ggml/formats/codebooks.hpp"
#include "tests/plugins/quant/support.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace {

using quant_test::golden;

TEST(QuantDecode, EveryFormatEqualsTheGoldenFloatsBitForBit) {
    ASSERT_EQ(ggml::formats().size(), 35u);
    for (const ggml::Format& format : ggml::formats()) {
        SCOPED_TRACE(format.abi.id);
        const auto blocks = golden(std::string{format.abi.id} + ".blocks.bin");
        const auto expected = golden(std::string{format.abi.id} + ".f32.bin");
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

template <class T, int kSize>
void expect_codebook(const ggml::Codebook<T, kSize>& book, const std::string& name, int factor) {
    SCOPED_TRACE(name);
    const std::vector<std::uint8_t> table = golden("tables/" + name + "_grid.bin");
    ASSERT_EQ(table.size(), sizeof(T) * kSize);
    for (std::size_t i = 0; i < table.size(); ++i) {
        const auto byte =
            static_cast<std::uint8_t>(book.entry[i / sizeof(T)] >> (8 * (i % sizeof(T))));
        ASSERT_EQ(byte, static_cast<std::uint8_t>(table[i] * factor))
            << "entry " << i / sizeof(T) << ", element " << i % sizeof(T);
    }
}

TEST(QuantDecode, EveryCodebookEntryEqualsTheGoldenTable) {
    expect_codebook(ggml::kIq2XxsCodebook, "iq2xxs", 1);
    expect_codebook(ggml::kIq2XsCodebook, "iq2xs", 1);
    expect_codebook(ggml::kIq2SCodebook, "iq2s", 1);
    expect_codebook(ggml::kIq3XxsCodebook, "iq3xxs", 1);
    expect_codebook(ggml::kIq3SCodebook, "iq3s", 1);
    expect_codebook(ggml::kIq1Codebook, "iq1s", 8);
}

/// All 128 scales of nvfp4, of which the golden blocks hold a part.
TEST(QuantDecode, EveryUe4m3ScaleEqualsTheGoldenTable) {
    const std::vector<std::uint8_t> table = golden("tables/ue4m3_value.bin");
    ASSERT_EQ(table.size(), 128u * 4);
    for (std::size_t byte = 0; byte < 128; ++byte) {
        std::uint8_t block[36] = {static_cast<std::uint8_t>(byte)};
        block[4] = 2;  // a level of twice 1, so that half the scale counts in full
        float out[64], value = 0;
        ggml::find_format("nvfp4")->decode(block, 1, out);
        std::memcpy(&value, &table[4 * byte], 4);
        EXPECT_EQ(out[0], value) << "scale byte " << byte;
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
        if (format.abi.id[0] == 'i' && format.abi.block_cols == 1) continue;  // integers
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
