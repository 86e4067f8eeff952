// The built image through its one exported symbol, as a host uses it.

#include "module.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <gmock/gmock.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace {

using loader_test::gguf_loader;
using loader_test::gguf_module;
using loader_test::OpenedModel;
using loader_test::TempFolder;
using test_support::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

std::string pattern(std::size_t n) {
    std::string text(n, '\0');
    for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i * 31 + 7);
    return text;
}

GgufWriter model() {
    GgufWriter w;
    w.string("general.architecture", "llama")
        .tensor({.name = "m", .ne = {64, 3, 2}, .type = 8, .data = pattern(408)})
        .tensor({.name = "s", .ne = {}, .type = 0, .data = "abcd"});
    return w;
}

TEST(GgufPlugin, SaysWhatItIs) {
    const assay_module& module = gguf_module();
    EXPECT_EQ(module.magic, ASSAY_MAGIC);
    EXPECT_EQ(module.size, sizeof(assay_module));
    EXPECT_EQ(module.abi_major, ASSAY_ABI_MAJOR);
    EXPECT_EQ(module.abi_minor, ASSAY_ABI_MINOR);
    EXPECT_STREQ(module.id, "gguf");
    EXPECT_STREQ(module.kinds, "loader/1");
    EXPECT_EQ(module.query("quant/1"), nullptr);
    EXPECT_EQ(module.open(nullptr, nullptr), ASSAY_OK);
    module.close();
    ASSERT_STREQ(gguf_loader().formats[0], "gguf");
    EXPECT_EQ(gguf_loader().formats[1], nullptr);
}

TEST(GgufPlugin, ProbeLooksAtTheMagic) {
    const TempFolder folder;
    model().write(folder / "good.gguf");
    loader_test::write_file(folder / "other", "GGML....");
    loader_test::write_file(folder / "short", "GGU");
    EXPECT_EQ(gguf_loader().probe((folder / "good.gguf").c_str()), 100);
    EXPECT_EQ(gguf_loader().probe((folder / "other").c_str()), 0);
    EXPECT_EQ(gguf_loader().probe((folder / "short").c_str()), 0);
    EXPECT_EQ(gguf_loader().probe((folder / "absent").c_str()), 0);
    EXPECT_EQ(gguf_loader().probe((folder / "").c_str()), 0);
}

TEST(GgufPlugin, ShapesAreOutermostFirst) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    const assay_tensor_info m = opened.tensor(0), s = opened.tensor(1);
    EXPECT_STREQ(m.name, "m");
    EXPECT_STREQ(m.format, "q8_0");
    ASSERT_EQ(m.rank, 3);
    EXPECT_EQ(m.shape[0], 2);
    EXPECT_EQ(m.shape[1], 3);
    EXPECT_EQ(m.shape[2], 64);
    EXPECT_EQ(m.bytes, 408u);
    ASSERT_EQ(s.rank, 1);
    EXPECT_EQ(s.shape[0], 1);
    assay_tensor_info past{};
    EXPECT_EQ(gguf_loader().tensor(opened.handle(), 2, &past), ASSAY_INVALID);
}

TEST(GgufPlugin, MapAndReadGiveTheStoredBytes) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    const assay_tensor_info m = opened.tensor(0);
    gguf_loader().will_need(opened.handle(), m.file, m.offset, m.bytes);

    assay_error err = sdk::make_error();
    const void* mapped = nullptr;
    ASSERT_EQ(gguf_loader().map(opened.handle(), 0, m.offset, m.bytes, &mapped, &err), ASSAY_OK)
        << err.text;
    EXPECT_EQ(std::memcmp(mapped, pattern(408).data(), 408), 0);
    gguf_loader().unmap(opened.handle(), 0, mapped, m.bytes);

    std::string copy(410, '#');
    ASSERT_EQ(gguf_loader().read(opened.handle(), 0, m.offset, 408, copy.data() + 1, &err),
              ASSAY_OK);
    EXPECT_EQ(copy, "#" + pattern(408) + "#");
}

TEST(GgufPlugin, RangesOutsideTheFileAreRefused) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    const std::uint64_t size = gguf_loader().file_bytes(opened.handle(), 0);
    struct Range {
        std::uint32_t file;
        std::uint64_t offset, bytes;
    };
    for (const Range r : {Range{1, 0, 1}, Range{0, size, 1}, Range{0, 1, size},
                          Range{0, UINT64_MAX, 2}, Range{0, 2, UINT64_MAX}}) {
        char byte = 'x';
        const void* mapped = &byte;
        assay_error err = sdk::make_error();
        EXPECT_EQ(gguf_loader().map(opened.handle(), r.file, r.offset, r.bytes, &mapped, &err),
                  ASSAY_INVALID);
        EXPECT_EQ(mapped, nullptr);
        EXPECT_STRNE(err.text, "");
        EXPECT_EQ(gguf_loader().read(opened.handle(), r.file, r.offset, r.bytes, &byte, &err),
                  ASSAY_INVALID);
        EXPECT_EQ(byte, 'x');
        gguf_loader().will_need(opened.handle(), r.file, r.offset, r.bytes);
    }
    const void* mapped = nullptr;
    EXPECT_EQ(gguf_loader().map(opened.handle(), 0, size, 0, &mapped, nullptr), ASSAY_OK);
    EXPECT_EQ(gguf_loader().file(opened.handle(), 1), nullptr);
    EXPECT_EQ(gguf_loader().file_bytes(opened.handle(), 1), 0u);
}

TEST(GgufPlugin, AFileThatShrankIsAnErrorNotASignal) {
    const TempFolder folder;
    GgufWriter w;
    w.string("general.architecture", "llama")
        .tensor({.name = "big", .ne = {64 * 1024}, .type = 24, .data = pattern(64 * 1024)});
    w.write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    const assay_tensor_info t = opened.tensor(0);
    std::filesystem::resize_file(folder / "m.gguf", 32 * 1024);
    assay_error err = sdk::make_error();
    const void* mapped = nullptr;
    EXPECT_EQ(gguf_loader().map(opened.handle(), 0, t.offset, t.bytes, &mapped, &err), ASSAY_IO);
    EXPECT_THAT(err.text, HasSubstr("m.gguf: the file shrank while in use"));
    std::string copy(t.bytes, '\0');
    EXPECT_EQ(gguf_loader().read(opened.handle(), 0, t.offset, t.bytes, copy.data(), &err),
              ASSAY_IO);
    EXPECT_THAT(err.text, HasSubstr("shrank"));
}

TEST(GgufPlugin, OnlyRegularFilesAreOpened) {
    const TempFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    const OpenedModel pipe{folder / "pipe"}, dir{folder / ""}, device{"/dev/zero"},
        absent{folder / "absent"};
    EXPECT_EQ(pipe.status(), ASSAY_IO);
    EXPECT_THAT(pipe.words(), HasSubstr("expected a regular file, found a pipe"));
    EXPECT_THAT(dir.words(), HasSubstr("found a folder"));
    EXPECT_THAT(device.words(), HasSubstr("found a device"));
    EXPECT_THAT(absent.words(), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
}

TEST(GgufPlugin, UnknownOptionsAreRefused) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const assay_option option{"prefetch", "yes"};
    assay_load_config config{};
    config.size = sizeof config;
    config.options = &option;
    config.num_options = 1;
    void* handle = nullptr;
    assay_error err = sdk::make_error();
    EXPECT_EQ(gguf_loader().open(nullptr, &config, (folder / "m.gguf").c_str(), &handle, &err),
              ASSAY_UNSUPPORTED);
    EXPECT_EQ(handle, nullptr);
    EXPECT_THAT(err.text, HasSubstr("\"prefetch\""));
    EXPECT_EQ(gguf_loader().open(nullptr, nullptr, nullptr, &handle, &err), ASSAY_INVALID);
}

TEST(GgufPlugin, IntegersBeyondInt64AreRefusedAloneAndLogged) {
    static std::vector<std::string> lines;
    lines.clear();
    static const assay_log log{sizeof(assay_log),
                               [](const assay_host*, int32_t level, const char* text) {
                                   if (level == ASSAY_WARN) lines.emplace_back(text);
                               }};
    assay_host host{};
    host.size = sizeof host;
    host.service = [](const assay_host*, const char* id) -> const void* {
        return std::string_view{id} == ASSAY_SERVICE_LOG ? &log : nullptr;
    };
    const TempFolder folder;
    model().value("hash", UINT64_MAX).value("after", 5).write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf", &host};
    ASSERT_TRUE(opened.ok()) << opened.words();
    assay_meta entry{};
    entry.size = sizeof entry;
    EXPECT_EQ(gguf_loader().meta(opened.handle(), 1, &entry), ASSAY_UNSUPPORTED);
    EXPECT_STREQ(entry.key, "hash");
    EXPECT_EQ(gguf_loader().meta(opened.handle(), 3, &entry), ASSAY_INVALID);
    EXPECT_EQ(*static_cast<const std::int64_t*>(opened.meta("after").data), 5);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_THAT(lines[0], HasSubstr("key \"hash\" holds an integer of 2^63 or more"));
}

TEST(GgufPlugin, AnOlderCallersShorterStructIsNotOverrun) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    assay_tensor_info info;
    std::memset(&info, 0x5a, sizeof info);
    info.size = offsetof(assay_tensor_info, offset);
    ASSERT_EQ(gguf_loader().tensor(opened.handle(), 0, &info), ASSAY_OK);
    EXPECT_EQ(info.size, offsetof(assay_tensor_info, offset));
    EXPECT_EQ(info.rank, 3);
    EXPECT_EQ(info.offset, 0x5a5a5a5a5a5a5a5au);
}

TEST(GgufPlugin, SeveralThreadsReadOneHandle) {
    const TempFolder folder;
    model().write(folder / "m.gguf");
    const OpenedModel opened{folder / "m.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    const assay_tensor_info m = opened.tensor(0);
    std::vector<std::string> copies(4, std::string(408, '\0'));
    std::vector<std::thread> threads;
    for (std::string& copy : copies)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i)
                (void)gguf_loader().read(opened.handle(), 0, m.offset, 408, copy.data(), nullptr);
        });
    for (std::thread& t : threads) t.join();
    for (const std::string& copy : copies) EXPECT_EQ(copy, pattern(408));
}

TEST(GgufPlugin, OpensTheDemoModel) {
    const OpenedModel opened{ASSAY_SOURCE_DIR "/models/assay-demo-Q4_K_M.gguf"};
    ASSERT_TRUE(opened.ok()) << opened.words();
    EXPECT_GT(opened.num_tensors(), 50u);
    const assay_meta tokens = opened.meta("tokenizer.ggml.tokens");
    EXPECT_EQ(tokens.item_type, ASSAY_META_STR);
    EXPECT_EQ(tokens.count, 3072u);
}

}  // namespace
