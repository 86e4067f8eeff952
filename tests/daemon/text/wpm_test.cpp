#include "daemon/text/lowercase.hpp"
#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <gtest/gtest.h>

namespace {

using Ids = std::vector<std::int32_t>;

/// [UNK], [CLS], [SEP], then words: U+2581 begins one.
base::Metadata bert(std::vector<tiny_vocab::Token> more) {
    std::vector<tiny_vocab::Token> tokens{{"[UNK]", 2}, {"[CLS]", 3}, {"[SEP]", 3}};
    tokens.insert(tokens.end(), more.begin(), more.end());
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"bert"});
    metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{1});
    metadata.set("tokenizer.ggml.seperator_token_id", std::int64_t{2});
    metadata.set("tokenizer.ggml.unknown_token_id", std::int64_t{0});
    tiny_vocab::set_tokens(metadata, tokens);
    return metadata;
}

Ids encode(const base::Metadata& metadata, std::string_view text,
           text::EncodeOptions options = {}) {
    return text::make_tokenizer(metadata)->encode(text, options).value();
}

TEST(Wpm, TakesTheLongestTokenFromTheLeft) {
    const auto metadata = bert({{"▁un"}, {"▁una"}, {"aff"}, {"ff"}, {"able"}, {"▁a"}});
    EXPECT_EQ(encode(metadata, "unaffable"), (Ids{4, 6, 7}));  // not un + aff + able: no way back
    EXPECT_EQ(encode(metadata, "a unff"), (Ids{8, 3, 6}));
}

TEST(Wpm, AWordThatDoesNotComeOutIsOneUnknownToken) {
    const auto metadata = bert({{"▁ab"}, {"c"}});
    EXPECT_EQ(encode(metadata, "abcx ab"), (Ids{0, 3}));
    EXPECT_EQ(encode(metadata, "cab"), (Ids{0}));  // "c" goes on a word, it begins none
}

TEST(Wpm, BeginsAndEndsWithItsMarks) {
    const auto metadata = bert({{"▁a"}});
    EXPECT_EQ(encode(metadata, "a", {.add_special = true}), (Ids{1, 3, 2}));
    EXPECT_EQ(encode(metadata, "a[SEP]a", {.parse_special = true}), (Ids{3, 2, 3}));
}

TEST(Wpm, NormalizesAsTheKeysSay) {
    base::Metadata metadata = bert({{"▁e"}, {"▁E"}, {"▁é"}, {"▁É"}});
    EXPECT_EQ(encode(metadata, "É"), (Ids{3}));
    metadata.set("tokenizer.ggml.normalizer.strip_accents", false);
    EXPECT_EQ(encode(metadata, "É"), (Ids{5}));
    metadata.set("tokenizer.ggml.normalizer.lowercase", false);
    EXPECT_EQ(encode(metadata, "É E"), (Ids{6, 4}));
    metadata.set("tokenizer.ggml.normalizer.strip_accents", true);
    EXPECT_EQ(encode(metadata, "É"), (Ids{4}));
}

TEST(Wpm, PunctuationSymbolsAndIdeographsAreWords) {
    const auto metadata = bert({{"▁a"}, {"▁+"}, {"▁—"}, {"▁中"}, {"a"}});
    EXPECT_EQ(encode(metadata, "a+a—a中中a"), (Ids{3, 4, 3, 5, 3, 6, 6, 3}));
    EXPECT_EQ(encode(metadata, "a\u200Ba"), (Ids{3, 7}));  // a format character vanishes
    EXPECT_EQ(encode(metadata,
                     "a\x0B"
                     "a\u3000a"),
              (Ids{3, 3, 3}));
    EXPECT_EQ(encode(metadata, "a\xFF"), (Ids{3}));  // so does what is no UTF-8
}

TEST(Wpm, CanonicalTextIsTheWords) {
    const auto tokenizer = text::make_tokenizer(bert({{"▁na"}, {"ive"}, {"▁,"}}));
    EXPECT_EQ(tokenizer->canonical("  Naïve,").value(), " naive ,");
}

TEST(Lowercase, MapsEachCharacterByItself) {
    EXPECT_EQ(text::to_lowercase("ÀÇ ΑΣ ЖЯ Ǆǅ ẞ Ⴀ Ａ 𐐀 İ 1"), "àç ασ жя ǆǆ ß ⴀ ａ 𐐨 i\u0307 1");
    EXPECT_EQ(text::to_lowercase("ĀāĂ ĲĹ\xFF"), "āāă ĳĺ\xFF");
}

}  // namespace
