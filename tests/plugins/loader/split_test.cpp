// Models in several files, made here from a few hundred bytes a part.

#include "plugins/loader/gguf/split.hpp"

#include "module.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <gmock/gmock.h>
#include <set>
#include <string>

namespace {

using loader_test::OpenedModel;
using loader_test::TempFolder;
using test_support::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Part `index` of `count`: two f32 tensors, "<index>.a" and "<index>.b", filled with the index.
GgufWriter part(int index, int count, int total_tensors) {
    GgufWriter w;
    if (index == 0) w.string("general.architecture", "llama").value("llama.block_count", 3);
    w.value("split.no", static_cast<std::uint16_t>(index))
        .value("split.count", static_cast<std::uint16_t>(count))
        .value("split.tensors.count", total_tensors);
    for (const char* name : {".a", ".b"})
        w.tensor({.name = std::to_string(index) + name,
                  .ne = {8},
                  .type = 0,
                  .data = std::string(32, static_cast<char>('0' + index))});
    return w;
}

std::string path_of(const TempFolder& folder, int index, int count) {
    return gguf::part_path(folder / "model", static_cast<std::uint32_t>(index),
                           static_cast<std::uint32_t>(count));
}

void write_parts(const TempFolder& folder, int count, const std::set<int>& without = {}) {
    for (int i = 0; i < count; ++i)
        if (!without.contains(i)) part(i, count, 2 * count).write(path_of(folder, i, count));
}

TEST(GgufSplit, NamesAreOneBasedWithFiveDigits) {
    EXPECT_EQ(gguf::part_path("/m/x", 0, 3), "/m/x-00001-of-00003.gguf");
    EXPECT_EQ(gguf::part_prefix("/m/x-00002-of-00003.gguf", {1, 3, {}}), "/m/x");
    EXPECT_EQ(gguf::part_prefix("/m/x-00002-of-00003.gguf", {0, 3, {}}), std::nullopt);
    EXPECT_EQ(gguf::part_prefix("/m/x.gguf", {0, 3, {}}), std::nullopt);
}

TEST(GgufSplit, AnyPartMayBeNamed) {
    const TempFolder folder;
    write_parts(folder, 3);
    for (int named = 0; named < 3; ++named) {
        const OpenedModel model{path_of(folder, named, 3)};
        ASSERT_TRUE(model.ok()) << model.words();
        ASSERT_EQ(loader_test::gguf_loader().file_count(model.handle()), 3u);
        ASSERT_EQ(model.num_tensors(), 6u);
        EXPECT_EQ(model.meta("llama.block_count").type, ASSAY_META_I64);  // of the first part
        for (std::uint64_t i = 0; i < 6; ++i) {
            const assay_tensor_info t = model.tensor(i);
            EXPECT_EQ(t.file, i / 2);
            EXPECT_STREQ(loader_test::gguf_loader().file(model.handle(), t.file),
                         path_of(folder, static_cast<int>(t.file), 3).c_str());
            std::string data(t.bytes, '?');
            ASSERT_EQ(loader_test::gguf_loader().read(model.handle(), t.file, t.offset, t.bytes,
                                                      data.data(), nullptr),
                      ASSAY_OK);
            EXPECT_EQ(data, std::string(32, static_cast<char>('0' + i / 2)));
        }
    }
}

TEST(GgufSplit, AllMissingPartsAreListedAtOnce) {
    const TempFolder folder;
    write_parts(folder, 9, {1, 4, 5, 6});
    const OpenedModel model{path_of(folder, 0, 9)};
    EXPECT_EQ(model.status(), ASSAY_IO);
    EXPECT_THAT(model.words(), AllOf(HasSubstr("4 of 9 parts are missing"), HasSubstr(": 2, 5-7;"),
                                     HasSubstr("model-00002-of-00009.gguf")));
}

TEST(GgufSplit, AListTooLongForTheMessageIsCounted) {
    const TempFolder folder;
    constexpr int kCount = 400;
    for (int i = 0; i < kCount; i += 2) part(i, kCount, 800).write(path_of(folder, i, kCount));
    const OpenedModel model{path_of(folder, 0, kCount)};
    EXPECT_THAT(model.words(),
                AllOf(HasSubstr("200 of 400 parts are missing"), HasSubstr(": 2, 4, 6,"),
                      HasSubstr(" more; the first should be")));
}

TEST(GgufSplit, MissingPartsAreFoundBeforeOthersAreParsed) {
    const TempFolder folder;
    write_parts(folder, 3, {2});
    loader_test::write_file(path_of(folder, 1, 3), "not a model");
    EXPECT_THAT(OpenedModel{path_of(folder, 0, 3)}.words(), HasSubstr("1 of 3 parts are missing"));
}

TEST(GgufSplit, MetadataBeatsTheFileName) {
    const TempFolder folder;
    GgufWriter whole;
    whole.string("general.architecture", "llama").tensor({.name = "t", .ne = {1}, .data = "1234"});
    whole.write(folder / "x-00001-of-00013.gguf");
    EXPECT_TRUE(OpenedModel{folder / "x-00001-of-00013.gguf"}.ok());
    for (const std::uint16_t count :
         {std::uint16_t{0}, std::uint16_t{1}}) {  // left behind by merging
        GgufWriter merged = whole;
        merged.value("split.count", count)
            .value("split.no", std::uint16_t{0})
            .value("split.tensors.count", 99);
        merged.write(folder / "merged.gguf");
        const OpenedModel model{folder / "merged.gguf"};
        EXPECT_TRUE(model.ok()) << model.words();
    }
}

TEST(GgufSplit, RenamedPartCannotFindTheOthers) {
    const TempFolder folder;
    write_parts(folder, 2);
    std::filesystem::copy_file(path_of(folder, 0, 2), folder / "renamed.gguf");
    EXPECT_THAT(OpenedModel{folder / "renamed.gguf"}.words(),
                AllOf(HasSubstr("renamed.gguf: bad split"), HasSubstr("-00001-of-00002.gguf")));
}

TEST(GgufSplit, PartsInEachOthersPlaceAreRefused) {
    const TempFolder folder;
    write_parts(folder, 3);
    std::filesystem::copy_file(path_of(folder, 1, 3), path_of(folder, 2, 3),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_THAT(OpenedModel{path_of(folder, 0, 3)}.words(),
                AllOf(HasSubstr("model-00003-of-00003.gguf"), HasSubstr("\"split.no\": expected 2"),
                      HasSubstr("found 1")));
}

TEST(GgufSplit, PartsOfAnotherSetAreRefused) {
    const TempFolder folder;
    write_parts(folder, 2);
    part(1, 3, 4).write(path_of(folder, 1, 2));
    EXPECT_THAT(OpenedModel{path_of(folder, 0, 2)}.words(),
                HasSubstr("\"split.count\": expected 2 as in the other parts, found 3"));
    part(1, 2, 5).write(path_of(folder, 1, 2));
    EXPECT_THAT(OpenedModel{path_of(folder, 0, 2)}.words(),
                HasSubstr("\"split.tensors.count\": expected 4 as in the other parts, found 5"));
}

TEST(GgufSplit, TensorsAreCountedAndUniqueOverAllParts) {
    const TempFolder folder;
    part(0, 2, 5).write(path_of(folder, 0, 2));
    part(1, 2, 5).write(path_of(folder, 1, 2));
    EXPECT_THAT(OpenedModel{path_of(folder, 0, 2)}.words(),
                HasSubstr("expected 5 tensors in all parts, found 4"));
    part(0, 2, 5).write(path_of(folder, 0, 2));
    GgufWriter twice = part(1, 2, 5);
    twice.tensor({.name = "0.b", .ne = {1}, .data = "1234"}).write(path_of(folder, 1, 2));
    EXPECT_THAT(OpenedModel{path_of(folder, 1, 2)}.words(),
                AllOf(HasSubstr("model-00002-of-00002.gguf: duplicate tensor"),
                      HasSubstr("\"0.b\""), HasSubstr("part 1")));
}

TEST(GgufSplit, FirstPartMayHoldNoTensors) {
    const TempFolder folder;
    GgufWriter first;
    first.string("general.architecture", "llama")
        .value("split.no", std::uint16_t{0})
        .value("split.count", std::uint16_t{2})
        .value("split.tensors.count", 2);
    first.write(path_of(folder, 0, 2));
    part(1, 2, 2).write(path_of(folder, 1, 2));
    const OpenedModel model{path_of(folder, 0, 2)};
    ASSERT_TRUE(model.ok()) << model.words();
    EXPECT_EQ(model.num_tensors(), 2u);
}

TEST(GgufSplit, PartsJoinedWithCatAreRecognised) {
    const TempFolder folder;
    const std::string joined = part(0, 2, 4).bytes() + part(1, 2, 4).bytes();
    for (const char* name : {"joined.gguf", "model-00001-of-00002.gguf"}) {
        loader_test::write_file(folder / name, joined);
        EXPECT_THAT(OpenedModel{folder / name}.words(),
                    AllOf(HasSubstr("a second GGUF file begins"), HasSubstr("joined with cat"),
                          HasSubstr("assayctl merge OUT PART")));
    }
    // Without padding behind the last tensor, and with no tensor at all.
    std::string unpadded = GgufWriter{}.tensor({.name = "t", .ne = {1}, .data = "1234"}).bytes();
    unpadded.resize(gguf::content_end(loader_test::parse(unpadded)));
    loader_test::write_file(folder / "unpadded.gguf", unpadded + unpadded);
    EXPECT_THAT(OpenedModel{folder / "unpadded.gguf"}.words(), HasSubstr("joined with cat"));
    const std::string empty = GgufWriter{}.string("general.architecture", "llama").bytes();
    loader_test::write_file(folder / "empty.gguf", empty + empty);
    EXPECT_THAT(OpenedModel{folder / "empty.gguf"}.words(), HasSubstr("joined with cat"));
    loader_test::write_file(folder / "trailing.gguf", empty + std::string(64, 'x'));
    EXPECT_TRUE(OpenedModel{folder / "trailing.gguf"}.ok());
}

TEST(GgufSplit, SplitKeysAreIntegersInRange) {
    const auto words = [](const GgufWriter& w) {
        const std::string file = w.bytes();
        const gguf::Header header = loader_test::parse(file);
        return loader_test::refusal([&] { (void)gguf::read_split_info(header, "p"); });
    };
    EXPECT_EQ(words(GgufWriter{}.value("split.no", 1).value("split.count", std::uint64_t{2})), "");
    EXPECT_THAT(words(GgufWriter{}.value("split.count", std::uint16_t{2})),
                HasSubstr("split.no\" is missing"));
    EXPECT_THAT(words(GgufWriter{}.value("split.no", 2).value("split.count", 2)),
                HasSubstr("expected less than split.count = 2, found 2"));
    EXPECT_THAT(words(GgufWriter{}.value("split.no", 0).value("split.count", 1.0f)),
                HasSubstr("expected an integer, found f32"));
    EXPECT_THAT(words(GgufWriter{}.value("split.count", 65536)), HasSubstr("expected 0 to 65535"));
    EXPECT_THAT(words(GgufWriter{}.value("split.tensors.count", -1)), HasSubstr("found -1"));
    EXPECT_THAT(words(GgufWriter{}.array<std::int32_t>("split.count", {2})),
                HasSubstr("found array"));
}

}  // namespace
