// Public reports of files that brought other loaders down, each in its smallest form. The test's
// number is the report's in the project's list; what stands for a kind of fault is tested as a kind
// elsewhere.

#include "module.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <gmock/gmock.h>
#include <string>

namespace {

using loader_test::OpenedModel;
using loader_test::TempFolder;
using loader_test::write_file;
using test_support::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

/// How the loader answers to a file of these bytes.
std::string words_for(const std::string& bytes) {
    const TempFolder folder;
    write_file(folder / "m.gguf", bytes);
    const OpenedModel model{folder / "m.gguf"};
    EXPECT_EQ(model.ok(), model.words().empty());
    return model.words();
}

GgufWriter llama() {
    GgufWriter w;
    w.string("general.architecture", "llama");
    return w;
}

GgufWriter part(std::uint16_t index, std::uint16_t count) {
    GgufWriter w = llama();
    w.value("split.no", index).value("split.count", count).value("split.tensors.count", int{count});
    w.tensor({.name = "t" + std::to_string(index), .ne = {8}, .data = std::string(32, 'x')});
    return w;
}

std::string part_name(const TempFolder& folder, int number, int count) {
    char name[48];
    std::snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    return folder / name;
}

TEST(KnownBugs, C1_PartsJoinedWithCat) {
    EXPECT_THAT(words_for(part(0, 2).bytes() + part(1, 2).bytes()),
                AllOf(HasSubstr("joined with cat"), HasSubstr("assayctl merge")));
}

TEST(KnownBugs, C2_TwoOfSixPartsAreMissing) {
    const TempFolder folder;
    for (const int number : {1, 3, 4, 6})
        part(static_cast<std::uint16_t>(number - 1), 6).write(part_name(folder, number, 6));
    EXPECT_THAT(OpenedModel{part_name(folder, 1, 6)}.words(),
                HasSubstr("2 of 6 parts are missing beside it: 2, 5"));
}

TEST(KnownBugs, C3_OpenedWithTheSecondPart) {
    const TempFolder folder;
    for (const int number : {1, 2, 3})
        part(static_cast<std::uint16_t>(number - 1), 3).write(part_name(folder, number, 3));
    const OpenedModel model{part_name(folder, 2, 3)};
    ASSERT_TRUE(model.ok()) << model.words();
    EXPECT_EQ(model.num_tensors(), 3u);
    EXPECT_STREQ(model.tensor(0).name, "t0");
}

TEST(KnownBugs, C4_AWholeFileNamedLikeAPart) {
    const TempFolder folder;
    llama().tensor({.name = "t", .ne = {1}, .data = "1234"}).write(part_name(folder, 1, 13));
    const OpenedModel model{part_name(folder, 1, 13)};
    EXPECT_TRUE(model.ok()) << model.words();
}

TEST(KnownBugs, C5_AnIncompleteSetIsRefusedBeforeAnyPartIsLoaded) {
    const TempFolder folder;
    part(0, 3).write(part_name(folder, 1, 3));
    // A part of a terabyte, all of it a hole: whoever read it would not be done within the test's
    // time.
    write_file(part_name(folder, 2, 3), "GGUF");
    std::filesystem::resize_file(part_name(folder, 2, 3), std::uint64_t{1} << 40);
    EXPECT_THAT(OpenedModel{part_name(folder, 1, 3)}.words(),
                HasSubstr("1 of 3 parts are missing beside it: 3"));
}

TEST(KnownBugs, C7_AnEmptyKeyIn37Bytes) {
    const std::string file{
        "GGUF\3\0\0\0"                 // version
        "\0\0\0\0\0\0\0\0"             // tensors
        "\1\0\0\0\0\0\0\0"             // entries
        "\0\0\0\0\0\0\0\0\0\0\0\0\7",  // a key of no bytes, u8
        37};
    EXPECT_THAT(words_for(file),
                testing::AnyOf(HasSubstr("metadata count too large"), HasSubstr("empty key")));
    EXPECT_THAT(words_for(file + std::string(8, '\0')), HasSubstr("empty key"));
}

TEST(KnownBugs, C8_ADimensionOfZero) {
    EXPECT_THAT(words_for(llama().tensor({.name = "t", .ne = {4, 0}}).bytes()),
                AllOf(HasSubstr("tensor \"t\""), HasSubstr("zero dimension")));
}

TEST(KnownBugs, C9_ScoresOfAnotherType) {
    GgufWriter w = llama();
    w.strings("tokenizer.ggml.tokens", {"a", "b"})
        .array<std::uint8_t>("tokenizer.ggml.scores", {1, 2});
    EXPECT_THAT(words_for(w.bytes()),
                AllOf(HasSubstr("tokenizer.ggml.scores"), HasSubstr("expected an array of f32")));
    GgufWriter types = llama();
    types.strings("tokenizer.ggml.tokens", {"a", "b"})
        .array<float>("tokenizer.ggml.token_type", {1, 1});
    EXPECT_THAT(words_for(types.bytes()), AllOf(HasSubstr("tokenizer.ggml.token_type"),
                                                HasSubstr("expected an array of integers")));
}

TEST(KnownBugs, C10_AnOffsetThatWraps) {
    const GgufWriter::Tensor good{.name = "a", .ne = {8}, .data = std::string(32, 'x')};
    for (const std::uint64_t offset :
         {std::uint64_t{0} - 64, std::uint64_t{0} - 32, std::uint64_t{1} << 63}) {
        GgufWriter w = llama();
        w.tensor(good).tensor(
            {.name = "b", .ne = {8}, .data = std::string(32, 'x'), .offset = offset});
        EXPECT_THAT(words_for(w.bytes()),
                    AllOf(HasSubstr("tensor \"b\""), HasSubstr("past the end of the file")));
    }
}

TEST(KnownBugs, C11_AlignmentOfZeroAndNineDimensions) {
    EXPECT_THAT(words_for(llama().value("general.alignment", std::uint32_t{0}).bytes()),
                HasSubstr("bad alignment"));
    EXPECT_THAT(
        words_for(llama()
                      .tensor({.name = "t", .ne = std::vector<std::uint64_t>(9, 1), .data = "1234"})
                      .bytes()),
        HasSubstr("too many dimensions"));
}

TEST(KnownBugs, C12_ADownloadThatLacksItsLastByte) {
    std::string file =
        llama().tensor({.name = "t", .ne = {8}, .data = std::string(32, 'x')}).bytes();
    file.pop_back();
    EXPECT_THAT(words_for(file), AllOf(HasSubstr("tensor \"t\""), HasSubstr("<= 31"),
                                       HasSubstr("0 + 32"), HasSubstr("truncated or damaged")));
}

TEST(KnownBugs, L1_TensorsLargerThanTheFile) {
    for (const std::uint64_t rows : {std::uint64_t{1} << 20, std::uint64_t{1} << 40}) {
        GgufWriter w = llama();
        w.tensor({.name = "t", .ne = {256, rows}, .type = 12, .data = std::string(144, 'x')});
        EXPECT_THAT(words_for(w.bytes()),
                    AllOf(HasSubstr("tensor \"t\""), HasSubstr("larger than the file")));
    }
}

TEST(KnownBugs, L2_SizesThatOverflow) {
    const std::uint64_t e32 = std::uint64_t{1} << 32;
    for (const std::vector<std::uint64_t>& ne : {std::vector<std::uint64_t>{e32, e32},
                                                 {e32, e32 / 2},
                                                 {e32 / 2, e32 / 2, 4},
                                                 {4, (1u << 30) - 1, (1u << 30) + 1}})
        EXPECT_THAT(words_for(llama().tensor({.name = "t", .ne = ne}).bytes()),
                    testing::AnyOf(HasSubstr("size overflow"), HasSubstr("larger than the file")));
}

}  // namespace
