#include "daemon/text/pretokenizer.hpp"

#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/golden_vocab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace {

std::vector<std::string> split(std::string_view pre, std::string_view text) {
    const text::PretokenizerRow* row = text::find_pretokenizer(pre);
    if (row == nullptr) return {"no such row"};
    const text::Pretokenizer pretokenizer{*row};
    std::vector<std::string_view> pieces;
    EXPECT_FALSE(pretokenizer.split(text, pieces));
    return {pieces.begin(), pieces.end()};
}

using Pieces = std::vector<std::string>;

TEST(PretokenizerTable, HoldsEveryKnownNameWithItsPatternsAndFlags) {
    const auto golden = golden::read_json("pretokenizers.json");
    std::set<std::string> names;
    for (const auto& group : golden.at("groups").as_array())
        for (const auto& member : group.at("members").as_array()) {
            for (const auto& name : member.at("pre").as_array()) {
                names.insert(golden::to_string(name));
                SCOPED_TRACE(golden::to_string(name));
                const auto* row = text::find_pretokenizer(golden::to_string(name));
                ASSERT_NE(row, nullptr);
                EXPECT_EQ(row->add_bos, member.at("flags").at("add_bos").as_bool());
                EXPECT_EQ(row->spelling == text::Spelling::byte_map,
                          member.at("flags").at("byte_encode").as_bool());
                EXPECT_EQ(row->spelling == text::Spelling::underscore,
                          member.at("flags").at("escape_whitespaces").as_bool());
                EXPECT_EQ(row->ignore_merges, member.at("flags").at("ignore_merges").as_bool());
                const auto& regexes = group.at("regexes").as_array();
                ASSERT_EQ(row->patterns.size(), regexes.size());
                for (std::size_t i = 0; i < regexes.size(); ++i) {
                    // A pattern may spell CR and LF as themselves or as escapes.
                    std::string expected = golden::to_string(regexes[i]);
                    for (std::size_t at; (at = expected.find('\r')) != expected.npos;)
                        expected.replace(at, 1, "\\r");
                    for (std::size_t at; (at = expected.find('\n')) != expected.npos;)
                        expected.replace(at, 1, "\\n");
                    EXPECT_EQ(row->patterns[i], expected);
                }
            }
        }
    EXPECT_EQ(text::pretokenizer_table().size(), names.size());
}

TEST(PretokenizerTable, EveryRowCompilesAndKeepsEveryByte) {
    constexpr std::string_view kText =
        "Hello  World's 12345 naïve ÉCOLE 中文，カナ \r\n\t x=y; (a.b) \u2003\u180E e\u0301 😀 ";
    for (const auto& row : text::pretokenizer_table()) {
        std::string joined;
        for (const std::string& piece : split(row.pre, kText)) joined += piece;
        EXPECT_EQ(joined, kText) << row.pre;
    }
}

TEST(Pretokenizer, SplitsAsTheModelsDo) {
    constexpr std::string_view kText = "I'll pay 12345 USD.\n\n  OK";
    EXPECT_EQ(split("gpt-2", kText),
              (Pieces{"I", "'ll", " pay", " 12345", " USD", ".", "\n\n ", " OK"}));
    EXPECT_EQ(split("llama-bpe", kText),
              (Pieces{"I", "'ll", " pay", " ", "123", "45", " USD", ".\n\n", " ", " OK"}));
    EXPECT_EQ(split("glm4", kText), split("llama-bpe", kText));
    EXPECT_EQ(split("chatglm-bpe", kText), split("glm4", kText));
    EXPECT_EQ(split("qwen2", kText), (Pieces{"I", "'ll", " pay", " ", "1", "2", "3", "4", "5",
                                             " USD", ".\n\n", " ", " OK"}));
    EXPECT_EQ(split("gpt-4o", "HelloWorld"), (Pieces{"Hello", "World"}));
    EXPECT_EQ(split("glm4", "HelloWorld"), (Pieces{"HelloWorld"}));
}

TEST(Pretokenizer, EmptyMatchesOnlyCut) {
    EXPECT_EQ(split("superbpe", "12345"), (Pieces{"12", "345"}));
    EXPECT_EQ(split("superbpe", "a1234567b"), (Pieces{"a", "1", "234", "567", "b"}));
    EXPECT_EQ(split("afmoe", "1234567"), (Pieces{"1", "234", "567"}));
}

TEST(Pretokenizer, WhiteSpaceIsTheUnicodeProperty) {
    // U+180E has been no white space since Unicode 6.3; PCRE2's own \s says it is.
    EXPECT_EQ(split("gpt-2", "a\u180Eb"), (Pieces{"a", "\u180E", "b"}));
    EXPECT_EQ(split("llama-bpe", "a\u180Eb"), (Pieces{"a", "\u180Eb"}));
    const text::Regex white_space{R"(\s)"}, other{R"([^\s])"}, outside{R"(\S)"};
    for (const char* c : {" ", "\t", "\r", "\x0B", "\u0085", "\u00A0", "\u2028", "\u3000"}) {
        EXPECT_TRUE(white_space.matches(c).value());
        EXPECT_FALSE(other.matches(c).value());
        EXPECT_FALSE(outside.matches(c).value());
    }
    for (const char* c : {"\u180E", "\u200B", "\uFEFF", "\x1C", "a"}) {
        EXPECT_FALSE(white_space.matches(c).value());
        EXPECT_TRUE(other.matches(c).value());
        EXPECT_TRUE(outside.matches(c).value());
    }
}

TEST(Pretokenizer, LookAroundSeesThePieceOnly) {
    // deepseek-llm cuts line breaks off first; \s+\z then matches at the end of each piece.
    EXPECT_EQ(split("deepseek-llm", "a  \nb"), (Pieces{"a", "  ", "\n", "b"}));
}

TEST(Pretokenizer, RefusesDigitsThatWouldTakeQuadraticTime) {
    const text::Pretokenizer pretokenizer{*text::find_pretokenizer("superbpe")};
    std::vector<std::string_view> pieces;
    EXPECT_FALSE(pretokenizer.split(std::string(2048, '7'), pieces));
    EXPECT_EQ(pieces.size(), 683u);
    EXPECT_EQ(pretokenizer.split("x" + std::string(100'000, '7'), pieces), text::Errc::regex_limit);
    EXPECT_FALSE(text::Pretokenizer{*text::find_pretokenizer("glm4")}.split(
        std::string(100'000, '7'), pieces));
}

TEST(Regex, GivesUpRatherThanBacktrackForever) {
    const text::Regex regex{R"((a|a)*\d)"};
    const auto result = regex.matches(std::string(60, 'a'));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), text::Errc::regex_limit);
}

TEST(Regex, LongRunsNeedNoDeepStack) {
    std::vector<std::string_view> pieces;
    const std::string run = [] {
        std::string s;
        for (int i = 0; i < 100'000; ++i) s += "a\u0301";
        return s;
    }();
    // A group repeated once a character, in the rows where it is so.
    for (const char* pre : {"exaone-moe", "kimi-k2", "gpt-4o", "youtu"})
        EXPECT_FALSE(text::Pretokenizer{*text::find_pretokenizer(pre)}.split(run, pieces)) << pre;
}

TEST(Regex, BrokenPatternsAreNamed) {
    try {
        const text::Regex regex{"(unclosed"};
        FAIL() << "compiled";
    } catch (const base::ModelError& error) {
        EXPECT_NE(std::string{error.what()}.find("(unclosed"), std::string::npos);
    }
}

}  // namespace
