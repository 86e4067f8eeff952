// The container's rules one by one, each broken in an otherwise good file. The words of a refusal
// are part of what is tested: they must let an operator find the place.

#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <gmock/gmock.h>
#include <string>
#include <vector>

namespace {

using loader_test::parse;
using loader_test::parse_refusal;
using test_support::GgufWriter;
using testing::HasSubstr;

std::string zeros(std::size_t n) {
    return std::string(n, '\0');
}

GgufWriter small_model() {
    GgufWriter w;
    w.string("general.architecture", "llama")
        .value("llama.block_count", std::uint32_t{2})
        .tensor({.name = "a.weight", .ne = {32, 3}, .type = 8, .data = zeros(102)})
        .tensor({.name = "b.bias", .ne = {5}, .type = 0, .data = zeros(20)});
    return w;
}

/// A file with one tensor whose info is written as given.
std::string with_tensor(GgufWriter::Tensor t) {
    return GgufWriter{}.tensor(std::move(t)).bytes();
}

// ---- what is accepted -------------------------------------------------------------------

TEST(GgufParse, ReadsVersions2And3) {
    for (const std::uint32_t version : {2u, 3u}) {
        const std::string file = GgufWriter{version}.string("k", "v").bytes();
        const gguf::Header header = parse(file);
        EXPECT_EQ(header.version, version);
        ASSERT_EQ(header.metadata.size(), 1u);
        EXPECT_EQ(header.metadata[0].payload, "v");
    }
}

TEST(GgufParse, GivesTensorsTheirPlaceInTheFile) {
    const std::string file = small_model().bytes();
    const gguf::Header header = parse(file);
    ASSERT_EQ(header.tensors.size(), 2u);
    const gguf::TensorInfo &a = header.tensors[0], &b = header.tensors[1];
    EXPECT_EQ(a.name, "a.weight");
    EXPECT_STREQ(a.type->format, "q8_0");
    EXPECT_EQ(a.rank, 2u);
    EXPECT_EQ(a.ne, (std::array<std::uint64_t, 4>{32, 3, 1, 1}));
    EXPECT_EQ(a.offset, header.data_start);
    EXPECT_EQ(a.bytes, 3u * 34);
    EXPECT_EQ(b.offset, header.data_start + 128);
    EXPECT_EQ(b.bytes, 20u);
    EXPECT_EQ(header.data_start % 32, 0u);
    EXPECT_EQ(gguf::content_end(header), b.offset + 20);
}

TEST(GgufParse, FindsKeysByName) {
    GgufWriter w;
    for (int i = 0; i < 200; ++i)
        w.value("key." + std::to_string(i * 7 % 200), std::int32_t{i * 7 % 200});
    const std::string file = w.bytes();
    const gguf::Header header = parse(file);
    for (int i = 0; i < 200; ++i) {
        const gguf::KeyValue* kv = header.find("key." + std::to_string(i));
        ASSERT_NE(kv, nullptr) << i;
        EXPECT_EQ(gguf::int_item(*kv), i);
    }
    EXPECT_EQ(header.find("key."), nullptr);
    EXPECT_EQ(header.find("key.200"), nullptr);
    EXPECT_EQ(header.find("zzz"), nullptr);
}

TEST(GgufParse, AlignmentMovesTheDataSection) {
    for (const std::uint32_t alignment : {8u, 64u, 4096u, 65536u}) {
        GgufWriter w;
        w.alignment(alignment).tensor({.name = "t", .ne = {4}, .type = 0, .data = zeros(16)});
        const std::string file = w.bytes();
        const gguf::Header header = parse(file);
        EXPECT_EQ(header.alignment, alignment);
        constexpr std::uint64_t kHeaderEnd = 90;  // 24 + 33 of metadata + 33 of tensor info
        EXPECT_EQ(header.data_start, (kHeaderEnd + alignment - 1) / alignment * alignment);
    }
}

TEST(GgufParse, AcceptsGapsAndAnyOrderOfTensors) {
    GgufWriter w;
    w.tensor({.name = "late", .ne = {4}, .type = 0, .data = zeros(256), .offset = 128})
        .tensor({.name = "early", .ne = {4}, .type = 0, .data = "", .offset = 0});
    const std::string file = w.bytes();
    const gguf::Header header = parse(file);
    EXPECT_EQ(header.tensors[0].offset, header.data_start + 128);
    EXPECT_EQ(header.tensors[1].offset, header.data_start);
}

TEST(GgufParse, NoDimensionsMeansOneElement) {
    const std::string file = with_tensor({.name = "s", .ne = {}, .type = 0, .data = zeros(4)});
    EXPECT_EQ(parse(file).tensors[0].bytes, 4u);
}

// ---- types ------------------------------------------------------------------------------

TEST(GgufTypes, TableHasTheSizesOfTheFormat) {
    struct Row {
        std::uint32_t id;
        const char* format;
        std::uint32_t elements, bytes;
    };
    constexpr Row kRows[] = {
        {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
        {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
        {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},      {10, "q2_k", 256, 84},
        {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
        {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66},
        {17, "iq2_xs", 256, 74},  {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
        {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},
        {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
        {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},
        {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},
        {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36},
        {41, "q1_0", 128, 18},    {42, "q2_0", 64, 18},
    };
    std::size_t known = 0;
    for (std::uint32_t id = 0; id < 1000; ++id) known += gguf::find_type(id) != nullptr;
    EXPECT_EQ(known, std::size(kRows));
    for (const Row& row : kRows) {
        const gguf::TensorType* type = gguf::find_type(row.id);
        ASSERT_NE(type, nullptr) << row.id;
        EXPECT_STREQ(type->format, row.format);
        EXPECT_EQ(type->block_elements, row.elements) << row.format;
        EXPECT_EQ(type->block_bytes, row.bytes) << row.format;
    }
}

TEST(GgufTypes, RefusesUnknownIdsByNumberAndName) {
    const auto words = [](std::uint32_t id) {
        return parse_refusal(
            with_tensor({.name = "t", .ne = {256}, .type = id, .data = zeros(1024)}));
    };
    EXPECT_THAT(words(4), HasSubstr("type id 4 (Q4_2, removed"));
    EXPECT_THAT(words(36), HasSubstr("I2_S of a fork"));
    EXPECT_THAT(words(137), HasSubstr("type id 137 (IQ2_K of ik_llama.cpp)"));
    EXPECT_THAT(words(222), HasSubstr("type id 222 (a type of ik_llama.cpp)"));
    EXPECT_THAT(words(43), HasSubstr("found type id 43;"));
    EXPECT_THAT(words(0xffffffff), HasSubstr("found type id 4294967295;"));
}

// ---- what is refused, and in which words ------------------------------------------------

TEST(GgufParse, TruncatedDataNamesTensorAndBytes) {
    std::string file = small_model().bytes();
    const std::uint64_t room = 148;  // 128 for the first tensor, 20 for the second
    file.resize(parse(file).data_start + room - 1);
    const std::string words = parse_refusal(file);
    EXPECT_THAT(words, HasSubstr("test.gguf: tensor \"b.bias\" at byte "));
    EXPECT_THAT(words, HasSubstr("expected offset + size <= 147 bytes of data, found 128 + 20"));
    EXPECT_THAT(words, HasSubstr("copy or download it again"));
}

TEST(GgufParse, BigEndianIsNamed) {
    std::string file = small_model().bytes();
    std::swap(file[4], file[7]);
    EXPECT_THAT(parse_refusal(file), HasSubstr("big-endian"));
}

TEST(GgufParse, CountsAreComparedWithTheRoomInTheFile) {
    std::string file = small_model().bytes();
    const std::uint64_t room_kv = (file.size() - 24) / 14, room_tensors = (file.size() - 24) / 24;
    const auto put = [&file](std::size_t at, std::uint64_t n) {
        std::memcpy(file.data() + at, &n, 8);
    };
    put(16, room_kv + 1);
    EXPECT_THAT(parse_refusal(file),
                HasSubstr("metadata count too large: the file has room for " +
                          std::to_string(room_kv) + ", found " + std::to_string(room_kv + 1)));
    put(8, room_tensors + 1);
    EXPECT_THAT(parse_refusal(file), HasSubstr("tensor count too large: the file has room for " +
                                               std::to_string(room_tensors)));
    put(8, 2);
    put(16, room_kv);  // fits by size alone: the entries themselves are missing
    EXPECT_THAT(parse_refusal(file), testing::Not(HasSubstr("count too large")));
}

TEST(GgufParse, DuplicateKeyNamesBothPlaces) {
    const std::string file =
        GgufWriter{}.string("same", "x").value("other", 1).string("same", "y").bytes();
    const std::string words = parse_refusal(file);
    EXPECT_THAT(words, HasSubstr("key \"same\" at byte 70: duplicate key"));
    EXPECT_THAT(words, HasSubstr("already present at byte 24"));
}

TEST(GgufParse, DuplicateTensorNamesBothPlaces) {
    GgufWriter w = small_model();
    w.tensor({.name = "a.weight", .ne = {8}, .type = 0, .data = zeros(32)});
    EXPECT_THAT(parse_refusal(w.bytes()), HasSubstr("tensor \"a.weight\" at byte"));
    EXPECT_THAT(parse_refusal(w.bytes()), HasSubstr("duplicate tensor"));
}

TEST(GgufParse, KeysArePrintableAscii) {
    EXPECT_THAT(parse_refusal(GgufWriter{}.value("a\nb", 1).bytes()), HasSubstr("\"a\\x0ab\""));
    EXPECT_THAT(parse_refusal(GgufWriter{}
                                  .value("gr\xc3\xb6\xc3\x9f"
                                         "e",
                                         1)
                                  .bytes()),
                HasSubstr("invalid key"));
    EXPECT_THAT(parse_refusal(GgufWriter{}.value(std::string_view{"a\0b", 3}, 1).bytes()),
                HasSubstr("invalid key"));
    EXPECT_THAT(parse_refusal(GgufWriter{}.value(std::string(65536, 'k'), 1).bytes()),
                HasSubstr("key too long: expected at most 65535 bytes, found a length of 65536"));
    EXPECT_EQ(parse_refusal(GgufWriter{}.value(std::string(65535, 'k'), 1).bytes()), "");
}

TEST(GgufParse, TensorNamesAreUtf8WithoutNul) {
    const auto words = [](std::string name) {
        return parse_refusal(with_tensor({.name = std::move(name), .ne = {1}, .data = zeros(4)}));
    };
    EXPECT_EQ(words("\xe6\x9d\x83\xe9\x87\x8d"), "");
    EXPECT_THAT(words("\xe6\x9d"), HasSubstr("invalid tensor name"));
    EXPECT_THAT(words("\xed\xa0\x80"), HasSubstr("invalid tensor name"));      // a surrogate
    EXPECT_THAT(words("\xc0\xaf"), HasSubstr("invalid tensor name"));          // overlong
    EXPECT_THAT(words("\xf4\x90\x80\x80"), HasSubstr("invalid tensor name"));  // above U+10FFFF
    EXPECT_THAT(words(std::string{"a\0b", 3}), HasSubstr("invalid tensor name"));
    EXPECT_THAT(words(std::string(64, 'n')), HasSubstr("tensor name too long"));
    EXPECT_THAT(words(""), HasSubstr("empty tensor name"));
}

TEST(GgufParse, BoolsAreZeroOrOne) {
    const std::string scalar = GgufWriter{}.raw("flag", 7, "\x02").bytes();
    EXPECT_THAT(parse_refusal(scalar), HasSubstr("invalid bool: expected 0 or 1, found 2"));
    std::string array = GgufWriter{}.array<bool>("flags", {true, false, true}).bytes();
    EXPECT_EQ(parse_refusal(array), "");
    array.back() = '\x80';
    EXPECT_THAT(parse_refusal(array), HasSubstr("found 128"));
}

TEST(GgufParse, ProductsAreCheckedAtEveryStep) {
    const auto words = [](std::vector<std::uint64_t> ne, std::uint32_t type) {
        return parse_refusal(
            with_tensor({.name = "t", .ne = std::move(ne), .type = type, .data = zeros(64)}));
    };
    EXPECT_THAT(words({1ull << 32, 1ull << 32}, 0), HasSubstr("size overflow"));
    EXPECT_THAT(words({1ull << 32, 1ull << 31}, 0), HasSubstr("size overflow"));
    EXPECT_THAT(words({1ull << 62}, 0), HasSubstr("size overflow"));
    EXPECT_THAT(words({4, (1ull << 30) - 1, (1ull << 30) + 1}, 0), HasSubstr("size overflow"));
    EXPECT_THAT(words({1ull << 63}, 0), HasSubstr("dimension too large"));
    EXPECT_THAT(words({4, 0}, 0), HasSubstr("zero dimension"));
    EXPECT_THAT(words({33}, 2),
                HasSubstr("q4_0 expects rows of a multiple of 32 elements, found 33"));
    EXPECT_THAT(words({1, 1, 1, 1, 1}, 0),
                HasSubstr("too many dimensions: expected at most 4, found 5"));
    EXPECT_THAT(words({17}, 0), HasSubstr("past the end of the file"));
}

TEST(GgufParse, OverlapNamesBothTensors) {
    GgufWriter w;
    w.tensor({.name = "first", .ne = {16}, .type = 0, .data = zeros(128)})
        .tensor({.name = "second", .ne = {8}, .type = 0, .data = "", .offset = 32});
    const std::string words = parse_refusal(w.bytes());
    EXPECT_THAT(words, HasSubstr("tensor \"second\""));
    EXPECT_THAT(words, HasSubstr("inside tensor \"first\""));
}

TEST(GgufParse, OneByteOfOverlapIsTooMuchAndTouchingIsNot) {
    const auto words = [](std::uint64_t first_elements) {
        GgufWriter w;
        w.alignment(8)
            .tensor({.name = "first", .ne = {first_elements}, .type = 24, .data = zeros(24)})
            .tensor({.name = "second", .ne = {8}, .type = 24, .data = "", .offset = 8});
        return parse_refusal(w.bytes());
    };
    EXPECT_EQ(words(8), "");
    EXPECT_THAT(words(9), HasSubstr("overlap"));
}

TEST(GgufParse, LimitsAreLimits) {
    gguf::Limits limits;
    limits.max_kv = 2;
    limits.max_tensors = 1;
    limits.max_string_bytes = 4;
    limits.max_array_items = 3;
    const auto words = [&](const GgufWriter& w) {
        const std::string file = w.bytes();
        return loader_test::refusal(
            [&] { (void)gguf::parse_header(loader_test::as_bytes(file), "f", limits); });
    };
    EXPECT_EQ(words(GgufWriter{}.value("a", 1).string("b", "1234")), "");
    EXPECT_THAT(words(GgufWriter{}.value("a", 1).value("b", 1).value("c", 1)),
                HasSubstr("metadata count too large: expected at most 2, found 3"));
    EXPECT_THAT(words(small_model()), HasSubstr("tensor count too large"));
    EXPECT_THAT(words(GgufWriter{}.string("b", "12345")), HasSubstr("string value too long"));
    EXPECT_THAT(words(GgufWriter{}.array<bool>("b", {true, true, true, true})),
                HasSubstr("array too long: expected at most 3 items, found 4"));
    limits = {};
    limits.max_header_bytes = 64;
    EXPECT_THAT(words(small_model()), HasSubstr("header too long"));
}

TEST(GgufParse, MessagesEscapeWhatTheFileSays) {
    const std::string file = with_tensor({.name = "evil\x1b[2J\"\\", .ne = {0}, .data = ""});
    EXPECT_THAT(parse_refusal(file), HasSubstr("tensor \"evil\\x1b[2J\\\"\\\\\""));
}

}  // namespace
