// The scan for weights that are not numbers.

#include "plugins/loader/gguf/weights.hpp"

#include "module.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/lanes.hpp"

#include <gtest/gtest.h>

#include <gmock/gmock.h>
#include <string>

namespace {

using loader_test::gguf_loader;
using test_support::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

struct Poison {
    std::uint32_t type;
    std::size_t at;     // byte of the block
    std::string bytes;  // Inf or NaN as the type stores it
};

const std::string kInf16{"\x00\x7c", 2}, kNan16{"\x01\xfe", 2};

const Poison kPoisons[] = {
    {0, 0, std::string{"\x00\x00\x80\xff", 4}},
    {1, 0, kInf16},
    {30, 0, std::string{"\x80\x7f", 2}},
    {28, 0, std::string{"\x01\x00\x00\x00\x00\x00\xf0\x7f", 8}},
    {2, 0, kNan16},
    {3, 2, kInf16},  // the minimum of a scale-and-minimum pair counts too
    {6, 0, kInf16},
    {7, 2, kNan16},
    {8, 0, kNan16},
    {10, 80, kInf16},
    {10, 82, kInf16},
    {11, 108, kInf16},
    {12, 2, kNan16},
    {13, 0, kInf16},
    {14, 208, kInf16},
    {16, 0, kInf16},
    {17, 0, kInf16},
    {18, 0, kInf16},
    {19, 0, kInf16},
    {20, 0, kInf16},
    {21, 0, kInf16},
    {22, 0, kInf16},
    {23, 0, kInf16},
    {29, 48, std::string{"\x00\x00\x00\x00\x00\xc0\x00\x70", 8}},  // top nibbles 0, 0, c, 7
    {34, 52, kInf16},
    {35, 64, kInf16},
    {39, 0, "\xff"},
    {40, 3, "\x7f"},
    {40, 0, "\xff"},
    {41, 0, kInf16},
    {42, 0, kInf16},
};

TEST(GgufWeights, OneBadScaleIsFoundInEveryType) {
    for (const Poison& poison : kPoisons) {
        const gguf::TensorType& type = *gguf::find_type(poison.type);
        SCOPED_TRACE(testing::Message() << type.format << ", byte " << poison.at);
        std::string data(5 * type.block_bytes, '\x11');
        EXPECT_EQ(gguf::find_non_finite(type, data), std::nullopt);
        data.replace(3 * type.block_bytes + poison.at, poison.bytes.size(), poison.bytes);
        EXPECT_EQ(gguf::find_non_finite(type, data), 3u);
    }
}

TEST(GgufWeights, TheSameBytesElsewhereInABlockAreWeights) {
    for (const std::uint32_t id : {2u, 8u, 12u, 14u, 39u, 40u}) {
        const gguf::TensorType& type = *gguf::find_type(id);
        std::string data(type.block_bytes, '\xff');
        for (const Poison& poison : kPoisons)
            if (poison.type == id)
                data.replace(poison.at, poison.bytes.size(), poison.bytes.size(), '\0');
        if (id == 12 || id == 40) data.replace(0, 4, 4, '\0');
        EXPECT_EQ(gguf::find_non_finite(type, data), std::nullopt) << type.format;
    }
}

TEST(GgufWeights, IntegersAreAlwaysFinite) {
    for (const std::uint32_t id : {24u, 25u, 26u, 27u})
        EXPECT_EQ(gguf::find_non_finite(*gguf::find_type(id), std::string(64, '\xff')),
                  std::nullopt);
}

assay_status open_with(const std::string& path, const char* value, assay_error& err) {
    const assay_option option{"check_weights", value};
    assay_load_config config{};
    config.size = sizeof config;
    config.options = &option;
    config.num_options = 1;
    void* handle = nullptr;
    const assay_status status = gguf_loader().open(nullptr, &config, path.c_str(), &handle, &err);
    if (handle != nullptr) gguf_loader().close(handle);
    return status;
}

TEST(GgufWeights, TheScanIsAnOptionOfTheLoader) {
    const loader_test::TempFolder folder;
    std::string data(40 * 34, '\x01');
    data.replace(25 * 34, 2, kInf16);
    GgufWriter w;
    w.string("general.architecture", "llama")
        .tensor({.name = "fine", .ne = {32}, .type = 8, .data = std::string(34, '\x01')})
        .tensor({.name = "bad", .ne = {64, 20}, .type = 8, .data = data});
    w.write(folder / "m.gguf");
    assay_error err = sdk::make_error();
    EXPECT_EQ(open_with(folder / "m.gguf", "false", err), ASSAY_OK);
    EXPECT_EQ(open_with(folder / "m.gguf", "maybe", err), ASSAY_UNSUPPORTED);
    EXPECT_THAT(err.text, HasSubstr("expected true or false, found \"maybe\""));
    EXPECT_EQ(open_with(folder / "m.gguf", "true", err), ASSAY_CORRUPT);
    EXPECT_THAT(err.text, AllOf(HasSubstr("m.gguf: tensor \"bad\" at byte "),
                                HasSubstr("weight is not finite"), HasSubstr("found +Inf (0x7c00)"),
                                HasSubstr("block 25 of q8_0 (row 12, block 1)")));
}

TEST(GgufWeights, ARefusalNamesMatrixRowBlockAndValueAndCountsTheTensors) {
    std::string experts(2 * 3 * 4 * 144, '\x01');  // [4 experts, 3 rows, 512]: two blocks a row
    experts.replace((2 * 3 * 2 + 2 * 1 + 1) * 144 + 2, 2, std::string{"\x00\xfc", 2});
    std::string floats(3 * 4, '\0');
    floats.replace(8, 4, std::string{"\x00\x00\xc0\x7f", 4});
    GgufWriter w;
    w.tensor({.name = "e", .ne = {512, 3, 4}, .type = 12, .data = experts})
        .tensor({.name = "f", .ne = {3}, .type = 0, .data = floats});
    const std::string file = w.bytes();
    const gguf::Header header = loader_test::parse(file);
    const gguf::WeightSource source{&header, loader_test::as_bytes(file), "x.gguf"};
    std::uint64_t looked_at = 0;
    EXPECT_THAT(
        loader_test::refusal([&] {
            gguf::check_weights({&source, 1}, nullptr, [&](std::uint64_t n) { looked_at += n; });
        }),
        AllOf(HasSubstr("x.gguf: tensor \"e\""),
              HasSubstr("found -Inf (0xfc00) in block 15 of q4_k"),
              HasSubstr("(matrix 2, row 1, block 1)"), HasSubstr("2 tensors have such weights")));
    EXPECT_EQ(looked_at, experts.size() + floats.size());
}

TEST(GgufWeights, AMatrixOfNothingButZerosIsRefusedAndAVectorIsNot) {
    // Of 20 MiB, so that it takes several pieces, of which one weight anywhere is enough.
    const auto refusal = [](std::uint32_t id, const std::string& data, bool is_vector = false) {
        const gguf::TensorType& type = *gguf::find_type(id);
        const std::uint64_t blocks = data.size() / type.block_bytes;
        std::vector<std::uint64_t> ne{type.block_elements, blocks};
        if (is_vector) ne = {blocks * type.block_elements};
        GgufWriter w;
        w.tensor({.name = "t", .ne = ne, .type = id, .data = data});
        const std::string file = w.bytes();
        const gguf::Header header = loader_test::parse(file);
        const gguf::WeightSource source{&header, loader_test::as_bytes(file), "x.gguf"};
        return loader_test::refusal([&] { gguf::check_weights({&source, 1}, nullptr); });
    };
    for (const std::uint32_t id : {0U, 1U, 8U, 12U, 14U, 30U, 39U}) {
        const gguf::TensorType& type = *gguf::find_type(id);
        SCOPED_TRACE(type.format);
        std::string data((20ULL << 20) / type.block_bytes * type.block_bytes, '\0');
        EXPECT_THAT(refusal(id, data),
                    AllOf(HasSubstr("x.gguf: tensor \"t\""), HasSubstr("expected weights, found"),
                          HasSubstr("has holes")));
        EXPECT_EQ(refusal(id, data, true), "");
        data.replace(data.size() - type.block_bytes, type.block_bytes, type.block_bytes, '\x11');
        EXPECT_EQ(refusal(id, data), "");
    }
    // Scales of 0 leave nothing of the values; -0 is 0.
    std::string scaled(std::size_t{144} * 6, '\x33');
    for (std::size_t at = 0; at < scaled.size(); at += 144)
        scaled.replace(at, 2, at == 0 ? std::string{"\x00\x80", 2} : std::string(2, '\0'));
    EXPECT_THAT(refusal(12, scaled), HasSubstr("a scale of 0 in every block of q4_k"));
}

TEST(GgufWeights, TheLastOfManyBlocksIsFoundByManyLanes) {
    // More than one piece and no whole number of stretches.
    const support::TestLanes lanes{3};
    for (const std::uint32_t id : {0u, 1u, 8u, 30u}) {
        const gguf::TensorType& type = *gguf::find_type(id);
        const std::uint64_t rows = (20ull << 20) / type.block_bytes + 7;
        std::string data(rows * type.block_bytes, '\x11');
        GgufWriter w;
        w.tensor({.name = "t", .ne = {type.block_elements, rows}, .type = id, .data = data});
        std::string file = w.bytes();
        const auto refusal = [&] {
            const gguf::Header header = loader_test::parse(file);
            const gguf::WeightSource source{&header, loader_test::as_bytes(file), "x.gguf"};
            return loader_test::refusal([&] { gguf::check_weights({&source, 1}, lanes.get()); });
        };
        EXPECT_EQ(refusal(), "") << type.format;
        const std::uint64_t last = gguf::content_end(loader_test::parse(file)) - type.block_bytes;
        file.replace(last, type.block_bytes, type.block_bytes, '\xff');
        EXPECT_THAT(refusal(), HasSubstr("in block " + std::to_string(rows - 1) + " of"))
            << type.format;
    }
}

TEST(GgufWeights, BadScalesOfTheGoldenSetAreFound) {
    for (const char* name :
         {"data_nan_scale_q4_0.gguf", "data_inf_scale_q8_0.gguf", "data_mxfp4_e_255.gguf"}) {
        const std::string file = loader_test::read_file(loader_test::bad_folder() / name);
        const gguf::Header header = loader_test::parse(file);
        EXPECT_THAT(loader_test::refusal([&] {
                        const gguf::WeightSource source{&header, loader_test::as_bytes(file), name};
                        gguf::check_weights({&source, 1}, nullptr);
                    }),
                    HasSubstr("weight is not finite"));
    }
}

}  // namespace
