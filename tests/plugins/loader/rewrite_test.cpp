// Merging and splitting: every byte of every tensor, and nothing left behind by a failure.

#include "plugins/loader/gguf/rewrite.hpp"

#include "module.hpp"
#include "plugins/loader/gguf/output_file.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <random>
#include <string>
#include <sys/resource.h>

namespace {

namespace fs = std::filesystem;
using loader_test::OpenedModel;
using loader_test::read_file;
using loader_test::refusal;
using loader_test::TempFolder;
using test_support::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

/// Seven tensors of awkward sizes and several types, metadata of every value type.
GgufWriter model(std::uint32_t seed, std::uint32_t alignment = 32) {
    GgufWriter w;
    w.string("general.architecture", "llama").value("llama.block_count", std::uint32_t{3});
    if (alignment != 32) w.alignment(alignment);
    w.value("a", std::int8_t{-3})
        .value("b", std::uint64_t{1} << 40)
        .value("c", 2.5)
        .value("d", true);
    w.array<float>("e", {1.0f, 2.0f})
        .strings("f", {"", "xy", std::string(300, 'z')})
        .array<bool>("g", {true, false});
    std::mt19937 random{seed};
    const auto bytes = [&random](std::size_t n) {
        std::string text(n, '\0');
        for (char& c : text) c = static_cast<char>(random());
        return text;
    };
    w.tensor({.name = "t0", .ne = {256, 5}, .type = 12, .data = bytes(5 * 144)})
        .tensor({.name = "t1", .ne = {33}, .type = 0, .data = bytes(132)})
        .tensor({.name = "t2", .ne = {32, 3, 7}, .type = 8, .data = bytes(714)})
        .tensor({.name = "t3", .ne = {32}, .type = 39, .data = bytes(17)})
        .tensor({.name = "t4", .ne = {1}, .type = 0, .data = bytes(4)})
        .tensor({.name = "t5", .ne = {1024, 4}, .type = 30, .data = bytes(8192)})
        .tensor({.name = "t6", .ne = {3}, .type = 0, .data = bytes(12)});
    return w;
}

std::vector<std::string> names_in(const TempFolder& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator{folder / ""})
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

/// Name and bytes of every tensor, as a host reads them.
std::vector<std::pair<std::string, std::string>> contents(const std::string& path) {
    const OpenedModel opened{path};
    EXPECT_TRUE(opened.ok()) << opened.words();
    std::vector<std::pair<std::string, std::string>> out;
    for (std::uint64_t i = 0; opened.ok() && i < opened.num_tensors(); ++i) {
        const assay_tensor_info t = opened.tensor(i);
        std::string data(t.bytes, '\0');
        EXPECT_EQ(loader_test::gguf_loader().read(opened.handle(), t.file, t.offset, t.bytes,
                                                  data.data(), nullptr),
                  ASSAY_OK);
        out.emplace_back(t.name, std::move(data));
    }
    return out;
}

TEST(GgufRewrite, SplittingAndMergingGivesTheSameFile) {
    for (const std::uint32_t alignment : {32u, 8u, 4096u}) {
        for (std::uint32_t parts = 2; parts <= 7; ++parts) {
            const TempFolder folder;
            const auto seed = std::random_device{}();
            SCOPED_TRACE(testing::Message()
                         << parts << " parts, alignment " << alignment << ", seed " << seed);
            model(seed, alignment).write(folder / "m.gguf");
            const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.num_parts = parts});
            ASSERT_EQ(paths.size(), parts);
            EXPECT_EQ(contents(paths[parts / 2]), contents(folder / "m.gguf"));
            gguf::merge(folder / "again.gguf", {paths.back()});
            EXPECT_TRUE(read_file(folder / "again.gguf") == read_file(folder / "m.gguf"));
        }
    }
}

TEST(GgufRewrite, PartsHaveTheSplitKeysAndTheFirstHasTheMetadata) {
    const TempFolder folder;
    model(1).write(folder / "m.gguf");
    const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.num_parts = 3});
    EXPECT_EQ(paths[0], folder / "s-00001-of-00003.gguf");
    for (std::size_t i = 0; i < paths.size(); ++i) {
        const std::string file = read_file(paths[i]);
        const gguf::Header header = loader_test::parse(file);
        const auto* no = header.find("split.no");
        const auto* count = header.find("split.count");
        const auto* total = header.find("split.tensors.count");
        ASSERT_TRUE(no != nullptr && count != nullptr && total != nullptr);
        EXPECT_EQ(no->type, gguf::ValueType::u16);  // other programs read exactly these types
        EXPECT_EQ(count->type, gguf::ValueType::u16);
        EXPECT_EQ(total->type, gguf::ValueType::i32);
        EXPECT_EQ(gguf::int_item(*no), static_cast<std::int64_t>(i));
        EXPECT_EQ(gguf::int_item(*count), 3);
        EXPECT_EQ(gguf::int_item(*total), 7);
        EXPECT_EQ(header.metadata.size(), i == 0 ? 9u + 3u : 3u);
        EXPECT_GE(header.tensors.size(), 1u);
    }
}

TEST(GgufRewrite, PartsStayBelowTheSizeAskedFor) {
    const TempFolder folder;
    model(2).write(folder / "m.gguf");
    const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.max_bytes = 8192 + 300});
    EXPECT_GT(paths.size(), 1u);
    for (const std::string& path : paths) EXPECT_LE(fs::file_size(path), 8192u + 300u) << path;
    EXPECT_EQ(contents(paths[0]), contents(folder / "m.gguf"));
    EXPECT_THAT(
        refusal([&] { (void)gguf::split(folder / "m.gguf", folder / "x", {.max_bytes = 4000}); }),
        AllOf(HasSubstr("tensor \"t5\" alone needs"), HasSubstr("4000")));
    EXPECT_THAT(refusal([&] {
                    (void)gguf::split(folder / "m.gguf", folder / "x", {.max_bytes = 1 << 20});
                }),
                HasSubstr("fits into one part"));
    EXPECT_THAT(
        refusal([&] { (void)gguf::split(folder / "m.gguf", folder / "x", {.num_parts = 8}); }),
        HasSubstr("expected 2 to 7"));
    EXPECT_THAT(refusal([&] { (void)gguf::split(folder / "m.gguf", folder / "x", {}); }),
                HasSubstr("one of them"));
}

TEST(GgufRewrite, ASplitModelIsCutAnew) {
    const TempFolder folder;
    model(3).write(folder / "m.gguf");
    const auto three = gguf::split(folder / "m.gguf", folder / "three", {.num_parts = 3});
    const auto five = gguf::split(three[1], folder / "five", {.num_parts = 5});
    EXPECT_EQ(contents(five[4]), contents(folder / "m.gguf"));
}

TEST(GgufRewrite, RenamedPartsAreMergedInAnyOrder) {
    const TempFolder folder;
    model(4).write(folder / "m.gguf");
    const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.num_parts = 3});
    const std::vector<std::string> renamed{folder / "c", folder / "a", folder / "b"};
    for (std::size_t i = 0; i < 3; ++i) fs::rename(paths[i], renamed[i]);
    gguf::merge(folder / "again.gguf", {renamed[1], renamed[2], renamed[0]});
    EXPECT_TRUE(read_file(folder / "again.gguf") == read_file(folder / "m.gguf"));

    const auto words = [&](const std::vector<std::string>& given) {
        return refusal([&] { gguf::merge(folder / "x.gguf", given); });
    };
    EXPECT_THAT(words({renamed[0], renamed[1]}), HasSubstr("1 of 3 parts were not given: 3"));
    EXPECT_THAT(words({renamed[2], renamed[1]}), HasSubstr("1 of 3 parts were not given: 1"));
    EXPECT_THAT(words({renamed[0], renamed[1], renamed[1]}),
                HasSubstr("also that of another part"));
    EXPECT_THAT(words({renamed[0], folder / "m.gguf"}), HasSubstr("the file is whole"));
}

TEST(GgufRewrite, NothingIsReplaced) {
    const TempFolder folder;
    model(5).write(folder / "m.gguf");
    const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.num_parts = 3});
    const std::string before = read_file(paths[1]);
    EXPECT_THAT(refusal([&] { gguf::merge(folder / "m.gguf", {paths[0]}); }),
                HasSubstr("exists already"));
    EXPECT_THAT(refusal([&] { gguf::merge(paths[1], {paths[0]}); }), HasSubstr("exists already"));
    fs::remove(paths[2]);
    EXPECT_THAT(
        refusal([&] { (void)gguf::split(folder / "m.gguf", folder / "s", {.num_parts = 3}); }),
        HasSubstr("exists already"));
    EXPECT_EQ(read_file(paths[1]), before);
    EXPECT_FALSE(fs::exists(paths[2]));
    EXPECT_EQ(names_in(folder).size(), 3u) << "a partial file is left";
}

TEST(GgufRewrite, ADiskThatIsFullLeavesNothingBehind) {
    // A limit on the size of files stands for the disk: writing beyond it fails alike.
    const TempFolder folder;
    model(6).write(folder / "m.gguf");
    const auto paths = gguf::split(folder / "m.gguf", folder / "s", {.num_parts = 2});
    const auto before = names_in(folder);
    struct rlimit old {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    struct rlimit small = old;
    small.rlim_cur = 4096;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string merging = refusal([&] { gguf::merge(folder / "x.gguf", {paths[0]}); });
    const std::string splitting =
        refusal([&] { (void)gguf::split(folder / "m.gguf", folder / "y", {.num_parts = 3}); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_THAT(merging, HasSubstr("x.gguf: cannot be sized"));
    EXPECT_THAT(splitting, HasSubstr("cannot be sized"));
    EXPECT_EQ(names_in(folder), before);
}

TEST(GgufOutputFile, AppearsWholeOrNotAtAll) {
    const TempFolder folder;
    {
        gguf::OutputFile file{folder / "f", 10};
        file.write(3, "abc", 3);
        EXPECT_FALSE(fs::exists(folder / "f"));
        EXPECT_EQ(names_in(folder).size(), 1u);
    }
    EXPECT_TRUE(names_in(folder).empty());
    {
        gguf::OutputFile file{folder / "f", 10};
        file.write(3, "abc", 3);
        file.sync();
        file.commit();
    }
    EXPECT_EQ(read_file(folder / "f"), std::string("\0\0\0abc\0\0\0\0", 10));
    EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
    EXPECT_THAT(refusal([&] {
                    gguf::OutputFile{folder / "no/such/f", 1};
                }),
                HasSubstr("cannot be created"));

    gguf::OutputFile late{folder / "g", 4};
    loader_test::write_file(folder / "g", "taken meanwhile");
    EXPECT_THAT(refusal([&] { late.commit(); }), HasSubstr("g: cannot be named so"));
    EXPECT_EQ(read_file(folder / "g"), "taken meanwhile");
}

TEST(GgufOutputFile, ADiskTooSmallIsFoundAtOnce) {
    const TempFolder folder;
    EXPECT_THAT(refusal([&] { gguf::OutputFile{folder / "f", std::uint64_t{1} << 60}; }),
                AllOf(HasSubstr("needs 1152921504606846976 bytes"), HasSubstr("are free")));
    EXPECT_TRUE(names_in(folder).empty());
}

}  // namespace
