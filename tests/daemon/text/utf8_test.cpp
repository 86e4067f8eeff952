#include "daemon/text/utf8.hpp"

#include "daemon/text/byte_map.hpp"

#include <gtest/gtest.h>

#include <random>

namespace {

TEST(Utf8, TellsValidFromInvalid) {
    EXPECT_TRUE(text::is_valid_utf8(""));
    EXPECT_TRUE(text::is_valid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
    EXPECT_TRUE(text::is_valid_utf8("\xF4\x8F\xBF\xBF"));
    for (const char* bad :
         {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"})
        EXPECT_FALSE(text::is_valid_utf8(bad)) << bad;
}

TEST(Utf8, AppendsEveryCodePointAsItIsRead) {
    for (char32_t c = 1; c <= 0x10FFFF; c += 13) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        std::string bytes;
        text::append_utf8(bytes, c);
        const text::Utf8Char read = text::first_character(bytes);
        ASSERT_TRUE(read.is_valid);
        ASSERT_EQ(read.code_point, c);
        ASSERT_EQ(read.bytes, bytes.size());
    }
}

TEST(Utf8Stream, ReplacesEachMaximalSubpartOnce) {
    // The Unicode Standard, chapter 3, tables 3-8 to 3-11.
    const std::pair<std::string_view, int> cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
         "A",
         8},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
         "A",
         8},
        {"\xF4\x91\x92\x93\xFF"
         "A\x80\xBF"
         "B",
         7},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
         "A",
         4},
    };
    for (const auto& [bytes, num_replaced] : cases) {
        text::Utf8Stream stream;
        const std::string out = stream.push(bytes) + stream.flush();
        int count = 0;
        for (std::size_t at = 0; (at = out.find(text::kReplacement, at)) != out.npos; at += 3)
            ++count;
        EXPECT_EQ(count, num_replaced);
    }
}

TEST(Utf8Stream, HoldsBackOnlyWhatMayStillBecomeACharacter) {
    text::Utf8Stream stream;
    EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
    EXPECT_EQ(stream.push("\x98"), "");
    EXPECT_EQ(stream.push("\x80"), "\xF0\x9F\x98\x80");
    EXPECT_EQ(stream.push("\xE2\x82"), "");
    EXPECT_EQ(stream.push("x"), "\xEF\xBF\xBDx");
    EXPECT_EQ(stream.push("\xED"), "");
    EXPECT_EQ(stream.push("\xA0"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate is never one
    EXPECT_EQ(stream.push("\xC3"), "");
    EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
    EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8StreamProperty, OutputDoesNotDependOnTheCuts) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    constexpr std::string_view kParts[] = {"a",        "\xC3\xA9",     "\xF0\x9F\x98\x80",
                                           "\xE2\x82", "\xF0\x9F",     "\x80",
                                           "\xFF",     "\xED\xA0\x80", "\xEF\xBF\xBD"};
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (std::size_t n = rng() % 12; n > 0; --n) bytes += kParts[rng() % std::size(kParts)];
        text::Utf8Stream whole, cut;
        std::string expected = whole.push(bytes);
        expected += whole.flush();
        std::string actual;
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t n = rng() % 4;
            const std::string delta = cut.push(std::string_view{bytes}.substr(at, n));
            ASSERT_TRUE(text::is_valid_utf8(delta));
            actual += delta;
            at += n;
        }
        actual += cut.flush();
        ASSERT_EQ(actual, expected);
        if (text::is_valid_utf8(bytes)) {
            ASSERT_EQ(actual, bytes);
        }
    }
}

TEST(RepairUtf8, KeepsValidTextAndReplacesByteByByte) {
    EXPECT_EQ(text::repair_utf8("a\xC3\xA9\xF0\x9F\x98\x80"), "a\xC3\xA9\xF0\x9F\x98\x80");
    EXPECT_EQ(text::repair_utf8("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(text::repair_utf8("\xC0\xAF"), "/");
    EXPECT_EQ(text::repair_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(ByteMap, EveryByteHasItsOwnCharacter) {
    std::string bytes, mapped;
    for (int byte = 0; byte < 256; ++byte) {
        bytes.push_back(static_cast<char>(byte));
        mapped += text::byte_to_character(static_cast<unsigned char>(byte));
    }
    EXPECT_EQ(text::unmap_bytes(mapped), bytes);
    EXPECT_EQ(text::byte_to_character(' '), "\u0120");
    EXPECT_EQ(text::byte_to_character('\n'), "\u010A");
    EXPECT_EQ(text::byte_to_character('A'), "A");
    EXPECT_EQ(text::byte_to_character(0xAD), "\u0143");
    EXPECT_EQ(text::unmap_bytes("a\u4E2D"), "a\u4E2D");  // stands for no byte: kept
}

}  // namespace
