#include "daemon/text/tokenizer.hpp"

#include "daemon/text/detokenizer.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace {

using Ids = std::vector<std::int32_t>;

Ids encode(const base::Metadata& metadata, std::string_view text,
           text::EncodeOptions options = {}) {
    return text::make_tokenizer(metadata)->encode(text, options).value();
}

/// The message of the ModelError that the metadata gives.
std::string refusal(const base::Metadata& metadata) {
    try {
        (void)text::make_tokenizer(metadata);
    } catch (const base::ModelError& error) {
        return error.what();
    }
    return "accepted";
}

void expect_refused(const base::Metadata& metadata, std::initializer_list<std::string_view> words) {
    const std::string message = refusal(metadata);
    for (const std::string_view word : words)
        EXPECT_NE(message.find(word), std::string::npos) << message;
}

// Byte-level BPE

TEST(Bpe, MergesByRankThenFromTheLeft) {
    const auto metadata =
        tiny_vocab::bpe({{"ab"}, {"bc"}, {"aa"}, {"aab"}}, {"b c", "a b", "a a", "a ab"});
    EXPECT_EQ(encode(metadata, "abc"), (Ids{'a', 257}));  // "b c" comes first
    EXPECT_EQ(encode(metadata, "aaa"), (Ids{258, 'a'}));  // the leftmost of equals
    EXPECT_EQ(encode(metadata, "aab"), (Ids{259}));       // a+ab, since "a b" beats "a a"
    EXPECT_EQ(encode(metadata, ""), Ids{});
}

TEST(Bpe, ARepeatedMergeKeepsItsFirstRank) {
    const auto metadata = tiny_vocab::bpe({{"ab"}, {"bc"}}, {"a b", "b c", "a b"});
    EXPECT_EQ(encode(metadata, "abc"), (Ids{256, 'c'}));
}

TEST(Bpe, TheSeparatorOfAMergeIsNeverItsFirstCharacter) {
    const auto metadata = tiny_vocab::bpe({{" x", 1}}, {"  x"});  // left " ", right "x"
    EXPECT_EQ(text::make_tokenizer(metadata)->find(" x"), 256);
}

TEST(Bpe, MergeResultsWithoutATokenFallBackToTheirCharacters) {
    const auto metadata = tiny_vocab::bpe({{"abc"}}, {"a b", "ab c"});  // "ab" is no token
    EXPECT_EQ(encode(metadata, "ab"), (Ids{'a', 'b'}));
    EXPECT_EQ(encode(metadata, "abc"), (Ids{256}));
}

TEST(Bpe, WholePiecesAreTakenOnlyWhereMergesAreIgnored) {
    const std::vector<tiny_vocab::Token> tokens{{"hello"}, {"secret", 3}};
    EXPECT_EQ(encode(tiny_vocab::bpe(tokens, {}, "llama-bpe"), "hello"), (Ids{256}));
    EXPECT_EQ(encode(tiny_vocab::bpe(tokens, {}, "glm4"), "hello").size(), 5u);
    // Not by plain text, though: that would let users type control tokens.
    EXPECT_EQ(encode(tiny_vocab::bpe(tokens, {}, "llama-bpe"), "secret").size(), 6u);
}

TEST(Bpe, LongPiecesTakeNoQuadraticTime) {
    const auto tokenizer =
        text::make_tokenizer(tiny_vocab::bpe({{"aa"}, {"aaaa"}}, {"a a", "aa aa"}));
    const auto ids = tokenizer->encode(std::string(1'000'000, 'a')).value();
    EXPECT_EQ(ids.size(), 250'000u);
}

TEST(Bpe, BytesRoundTrip) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe({}, {}));
    std::string all;
    for (char32_t c = 1; c < 0x3000; c += 7) text::append_utf8(all, c);
    std::string back;
    for (const std::int32_t id : tokenizer->encode(all).value()) back += tokenizer->token_piece(id);
    EXPECT_EQ(back, all);
}

// SPM

TEST(Spm, TakesTheBestScoreThenTheLeftmost) {
    const auto metadata = tiny_vocab::spm(
        {{"a", 1, -9}, {"b", 1, -9}, {"c", 1, -9}, {"ab", 1, -2}, {"bc", 1, -1}, {"aa", 1, -3}});
    base::Metadata plain = metadata;
    plain.set("tokenizer.ggml.add_space_prefix", false);
    EXPECT_EQ(encode(plain, "abc"), (Ids{259, 263}));
    EXPECT_EQ(encode(plain, "aaa"), (Ids{264, 259}));
}

TEST(Spm, EveryFragmentGetsThePrefixSpace) {
    const auto metadata = tiny_vocab::spm();
    EXPECT_EQ(encode(metadata, "ab"), (Ids{263}));
    EXPECT_EQ(encode(metadata, " ab"), (Ids{259, 263}));  // the space typed, and the one added
    EXPECT_EQ(encode(metadata, "ab<s>ab", {.parse_special = true}), (Ids{263, 1, 263}));
    EXPECT_EQ(encode(metadata, "ab", {.add_special = true}), (Ids{1, 263}));
}

TEST(Spm, UnknownCharactersBecomeBytes) {
    base::Metadata metadata = tiny_vocab::spm();
    metadata.set("tokenizer.ggml.add_space_prefix", false);
    EXPECT_EQ(encode(metadata, "\u00E9\n"), (Ids{3 + 0xC3, 3 + 0xA9, 3 + 0x0A}));
    EXPECT_EQ(encode(metadata, "\xFF"), (Ids{3 + 0xFF}));
}

TEST(Spm, WithoutByteTokensThereIsTheUnknownToken) {
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"llama"});
    tiny_vocab::set_tokens(metadata, {{"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"a"}, {"!"}});
    metadata.set("tokenizer.ggml.add_space_prefix", false);
    EXPECT_EQ(encode(metadata, "a?!"), (Ids{3, 0, 4}));
}

TEST(Spm, PlainTextNeverBecomesAControlOrByteToken) {
    base::Metadata metadata =
        tiny_vocab::spm({{"<", 1, -1}, {"s", 1, -1}, {">", 1, -1}, {"<s", 1, -1}, {"/", 1, -1}});
    metadata.set("tokenizer.ggml.add_space_prefix", false);
    EXPECT_EQ(encode(metadata, "<s>"), (Ids{262, 261}));  // "<s" and ">" would make <s>
    EXPECT_EQ(encode(metadata, "<s>", {.parse_special = true}), (Ids{1}));
}

TEST(Spm, LongTextTakesNoQuadraticTime) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::spm());
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += "ab ";
    EXPECT_EQ(tokenizer->encode(text).value().size(), 200'001u);
}

// Special tokens

TEST(SpecialTokens, TheLongestOfThoseThatBeginAtOnePlaceWins) {
    const auto metadata = tiny_vocab::bpe({{"<|x|>", 3}, {"<|x|>y", 3}, {"|>z", 3}}, {});
    EXPECT_EQ(encode(metadata, "<|x|>y", {.parse_special = true}), (Ids{257}));
    EXPECT_EQ(encode(metadata, "<|x|>z", {.parse_special = true}), (Ids{256, 'z'}));
    EXPECT_EQ(encode(metadata, "<|x|z", {.parse_special = true}).size(), 5u);
}

TEST(SpecialTokens, WhatUsersTypedIsNoControlToken) {
    const auto tokenizer =
        text::make_tokenizer(tiny_vocab::bpe({{"<ctl>", 3}, {"<ctl>y", 3}, {"<tool>", 4}}, {}));
    const std::string text = "<ctl>a<ctl><tool><ctl>y";
    const auto encode_with = [&](std::vector<text::TextRange> plain) {
        return tokenizer->encode(text, {.parse_special = true, .plain = plain}).value();
    };
    EXPECT_EQ(encode_with({}), (Ids{256, 'a', 256, 258, 257}));
    EXPECT_EQ(encode_with({{6, 11}}), (Ids{256, 'a', '<', 'c', 't', 'l', '>', 258, 257}));
    EXPECT_EQ(encode_with({{6, 17}}), (Ids{256, 'a', '<', 'c', 't', 'l', '>', 258, 257}));
    EXPECT_EQ(encode_with({{22, 23}}), (Ids{256, 'a', 256, 258, 256, 'y'}));  // only "y" was typed
    EXPECT_EQ(encode_with({{0, 2}, {7, 8}}),
              (Ids{'<', 'c', 't', 'l', '>', 'a', '<', 'c', 't', 'l', '>', 258, 257}));
    const auto found = tokenizer->find_control(text);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[1].begin, 6u);
    EXPECT_EQ(found[2].end, 23u);
}

TEST(SpecialTokens, ABosThatTheTextBeginsWithIsNotRepeated) {
    const auto metadata = tiny_vocab::spm();
    const text::EncodeOptions both{.add_special = true, .parse_special = true};
    EXPECT_EQ(encode(metadata, "<s>ab", both), (Ids{1, 263}));
    EXPECT_EQ(encode(metadata, "ab", both), (Ids{1, 263}));
    EXPECT_EQ(encode(metadata, "<s>", {.add_special = true}).front(), 1);  // typed, so there is one
    EXPECT_GT(encode(metadata, "<s>", {.add_special = true}).size(), 1u);
}

TEST(SpecialTokens, UserDefinedOnesAreFoundInAnyText) {
    const auto metadata = tiny_vocab::bpe({{"<tool>", 4}, {"<ctl>", 3}}, {});
    EXPECT_EQ(encode(metadata, "a<tool>b"), (Ids{'a', 256, 'b'}));
    EXPECT_EQ(encode(metadata, "<ctl>").size(), 5u);
    EXPECT_EQ(text::make_tokenizer(metadata)->token_piece(256), "<tool>");
}

TEST(SpecialTokens, PhiTokensTakeTheWhiteSpaceBehindThem) {
    base::Metadata metadata = tiny_vocab::spm({{"<|end|>", 3}, {"a", 1}, {"\u2581", 1}});
    metadata.set("tokenizer.ggml.add_space_prefix", false);
    const text::EncodeOptions options{.parse_special = true};
    EXPECT_EQ(encode(metadata, "<|end|> \n a", options), (Ids{259, 261, 3 + '\n', 261, 260}));
    metadata.set("general.name", std::string{"Phi-3 mini"});
    EXPECT_EQ(encode(metadata, "<|end|> \n a", options), (Ids{259, 260}));
    EXPECT_EQ(encode(metadata, "<s> a", options), (Ids{1, 261, 260}));
}

TEST(SpecialTokens, IdsOutsideTheVocabularyCountAsMissing) {
    base::Metadata metadata = tiny_vocab::spm();
    metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{5000});
    metadata.set("tokenizer.ggml.padding_token_id", std::int64_t{-1});
    const auto tokenizer = text::make_tokenizer(metadata);
    EXPECT_EQ(tokenizer->special().eos, 2);
    EXPECT_EQ(tokenizer->special().pad, text::kNoToken);
}

TEST(SpecialTokens, AnOrdinaryTokenIsNoDefaultBos) {
    const auto plain = text::make_tokenizer(tiny_vocab::bpe({}, {}));
    EXPECT_EQ(plain->special().bos, text::kNoToken);
    EXPECT_TRUE(plain->eog_ids().empty());
    const auto llama =
        text::make_tokenizer(tiny_vocab::bpe({{"<|begin_of_text|>", 3}}, {}, "llama-bpe"));
    EXPECT_FALSE(llama->add_bos());  // the pre-tokenizer's default, but no BOS is known
    base::Metadata metadata = tiny_vocab::bpe({{"<|begin_of_text|>", 3}}, {}, "llama-bpe");
    metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{256});
    EXPECT_TRUE(text::make_tokenizer(metadata)->add_bos());
    EXPECT_EQ(encode(metadata, "a", {.add_special = true}), (Ids{256, 'a'}));
}

TEST(SpecialTokens, EosIsAddedWhereTheFileSaysSo) {
    base::Metadata metadata = tiny_vocab::spm();
    metadata.set("tokenizer.ggml.add_bos_token", false);
    metadata.set("tokenizer.ggml.add_eos_token", true);
    EXPECT_EQ(encode(metadata, "ab", {.add_special = true}), (Ids{263, 2}));
    EXPECT_EQ(encode(metadata, "ab"), (Ids{263}));
}

TEST(EndOfGeneration, IsASetOfWellKnownTexts) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe({{"<|eot_id|>", 1},
                                                                 {"<|end_of_text|>", 4},
                                                                 {"<|fim_pad|>", 3},
                                                                 {"<|file_sep|>", 3},
                                                                 {"<|other|>", 3}},
                                                                {}));
    EXPECT_EQ(tokenizer->eog_ids(), (Ids{256, 257, 258, 259}));
    EXPECT_EQ(tokenizer->special().eot, 256);
    EXPECT_EQ(tokenizer->token_type(256), text::TokenType::control);
    EXPECT_EQ(tokenizer->token_type(257), text::TokenType::control);
}

TEST(EndOfGeneration, GlmStopsAtTheNextTurnWithoutTheKeys) {
    const std::vector<tiny_vocab::Token> tokens{
        {"<|endoftext|>", 3}, {"<|user|>", 3}, {"<|observation|>", 3}};
    EXPECT_EQ(text::make_tokenizer(tiny_vocab::bpe(tokens, {}, "glm4"))->eog_ids(),
              (Ids{256, 257, 258}));
    EXPECT_EQ(text::make_tokenizer(tiny_vocab::bpe(tokens, {}, "qwen2"))->eog_ids(), (Ids{256}));
}

TEST(EndOfGeneration, HarmonyKeepsItsEndMarkInTheText) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe(
        {{"<|return|>", 3}, {"<|call|>", 3}, {"<|end|>", 3}, {"<|channel|>", 3}}, {}));
    EXPECT_EQ(tokenizer->eog_ids(), (Ids{256, 257}));
    EXPECT_EQ(tokenizer->token_type(258), text::TokenType::user_defined);
    EXPECT_EQ(tokenizer->token_piece(259), "<|channel|>");
}

TEST(EndOfGeneration, ToolResponseReplacesTheOldEndMark) {
    const auto tokenizer =
        text::make_tokenizer(tiny_vocab::bpe({{"<|tool_response>", 3}, {"</s>", 3}}, {}));
    EXPECT_EQ(tokenizer->eog_ids(), (Ids{256}));
    EXPECT_EQ(tokenizer->token_type(257), text::TokenType::normal);
}

TEST(EndOfGeneration, ATokenThatTextMergesToIsNoMark) {
    const std::vector<tiny_vocab::Token> tokens{{"</"}, {"s>"}, {"</s>"}};
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe(tokens, {"< /", "s >", "</ s>"}));
    EXPECT_TRUE(tokenizer->eog_ids().empty());
    EXPECT_EQ(tokenizer->token_type(258), text::TokenType::normal);
    EXPECT_EQ(text::make_tokenizer(tiny_vocab::bpe(tokens, {}))->eog_ids(), (Ids{258}));
}

TEST(SuppressTokens, IdsOutOfRangeAreDropped) {
    base::Metadata metadata = tiny_vocab::spm();
    metadata.set("tokenizer.ggml.suppress_tokens", std::vector<std::int64_t>{5, -1, 99999});
    EXPECT_EQ(text::make_tokenizer(metadata)->suppressed_ids(), (Ids{5}));
}

// Pieces

TEST(TokenPiece, PrintsByTypeAndOption) {
    base::Metadata metadata =
        tiny_vocab::spm({{"\u2581a\u2581b"}, {"unused", 5}, {"undefined", 0}, {"us er", 4}});
    const auto tokenizer = text::make_tokenizer(metadata);
    EXPECT_EQ(tokenizer->token_piece(259), " a b");
    EXPECT_EQ(tokenizer->token_piece(260, true), "");
    EXPECT_EQ(tokenizer->token_piece(261, true), "");
    EXPECT_EQ(tokenizer->token_piece(262), "us er");
    EXPECT_EQ(tokenizer->token_piece(1), "");
    EXPECT_EQ(tokenizer->token_piece(1, true), "<s>");
    EXPECT_EQ(tokenizer->token_piece(3 + 0xFF), "\xFF");
    EXPECT_EQ(tokenizer->token_text(259), "\u2581a\u2581b");
}

TEST(Detokenizer, DropsOneLeadingSpaceAtTheStartOfATextOnly) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::spm());
    const auto decode = [&](const Ids& ids, bool at_text_start) {
        text::Detokenizer detokenizer{*tokenizer, {.at_text_start = at_text_start}};
        std::string out;
        for (const std::int32_t id : ids) out += detokenizer.push(id);
        return out + detokenizer.flush();
    };
    EXPECT_EQ(decode({263, 263}, true), "ab ab");
    EXPECT_EQ(decode({263, 263}, false), " ab ab");
    EXPECT_EQ(decode({1, 263}, true), "ab");     // after a BOS too
    EXPECT_EQ(decode({259, 263}, true), " ab");  // one space, not all
    EXPECT_EQ(decode({261, 263}, true), "b ab");
    EXPECT_EQ(decode({3 + 0xC3}, true), "\xEF\xBF\xBD");
}

TEST(Detokenizer, ByteLevelModelsKeepTheirSpaces) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe({}, {}));
    text::Detokenizer detokenizer{*tokenizer, {.at_text_start = true}};
    EXPECT_EQ(detokenizer.push(' '), " ");
}

// Refusals

TEST(MakeTokenizer, RefusesUnknownModels) {
    expect_refused({}, {"tokenizer.ggml.model", "gpt2", "no such key"});
    base::Metadata metadata = tiny_vocab::spm();
    metadata.set("tokenizer.ggml.model", std::string{"rwkv"});
    expect_refused(metadata, {"tokenizer.ggml.model", "llama", "bert", "t5", "rwkv"});
    metadata.set("tokenizer.ggml.model", std::int64_t{3});
    expect_refused(metadata, {"tokenizer.ggml.model", "string", "integer"});
}

TEST(MakeTokenizer, RefusesBpeWithoutAKnownPretokenizer) {
    expect_refused(tiny_vocab::bpe({}, {}, "not-yet-invented"),
                   {"tokenizer.ggml.pre", "not-yet-invented"});
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"gpt2"});
    expect_refused(metadata, {"tokenizer.ggml.pre", "no such key", "model.pre_tokenizer", "glm4",
                              "llama-bpe", "qwen2"});
}

TEST(MakeTokenizer, TakesTheConfiguredPretokenizerWhereTheFileNamesNone) {
    base::Metadata metadata = tiny_vocab::bpe({{"hello"}}, {}, "not-yet-invented");
    const auto ids = [&](std::string_view pre) {
        return text::make_tokenizer(metadata, {.pre_tokenizer = pre})->encode("hello").value();
    };
    EXPECT_EQ(ids("llama-bpe"), (Ids{256}));
    EXPECT_EQ(ids("glm4").size(), 5u);
    const auto config_refusal = [&](std::string_view pre) -> std::string {
        try {
            (void)text::make_tokenizer(metadata, {.pre_tokenizer = pre});
        } catch (const base::ConfigError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_NE(config_refusal("glm-4").find("model.pre_tokenizer: got \"glm-4\""),
              std::string::npos);
    EXPECT_NE(config_refusal("glm-4").find("chatglm-bpe"), std::string::npos);
    // A file that knows better is not overruled.
    metadata.set("tokenizer.ggml.pre", std::string{"qwen2"});
    EXPECT_NE(config_refusal("glm4").find("\"qwen2\""), std::string::npos);
    EXPECT_EQ(config_refusal("qwen2"), "accepted");
}

TEST(MakeTokenizer, RefusesDamagedVocabularies) {
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"llama"});
    expect_refused(metadata, {"tokenizer.ggml.tokens", "array of strings"});
    metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{});
    expect_refused(metadata, {"tokenizer.ggml.tokens", "empty"});
    metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "a"});
    expect_refused(metadata, {"tokenizer.ggml.tokens", "\"a\"", "token 0", "token 2"});
    metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    metadata.set("tokenizer.ggml.token_type", std::vector<std::int64_t>{1});
    expect_refused(metadata, {"tokenizer.ggml.token_type", "2", "1"});
    metadata.set("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 99});
    metadata.set("tokenizer.ggml.scores", std::vector<double>{0.0});
    expect_refused(metadata, {"tokenizer.ggml.scores", "expected 2"});
    metadata.set("tokenizer.ggml.scores", std::vector<double>{0.0, std::nan("")});
    expect_refused(metadata, {"tokenizer.ggml.scores", "NaN", "token 1"});
    metadata.set("tokenizer.ggml.scores", std::vector<double>{0.0, 1.0});
    EXPECT_EQ(refusal(metadata), "accepted");
}

TEST(MakeTokenizer, RefusesMissingAndMalformedMerges) {
    for (const char* merge : {"", "ab", "a ", " b"})
        expect_refused(tiny_vocab::bpe({}, {"a b", merge}), {"tokenizer.ggml.merges", "merge 1"});
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"gpt2"});
    metadata.set("tokenizer.ggml.pre", std::string{"gpt-2"});
    metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    expect_refused(metadata, {"tokenizer.ggml.merges", "no such key"});
}

TEST(MakeTokenizer, RefusesToAddATokenThatItDoesNotKnow) {
    base::Metadata metadata = tiny_vocab::bpe({}, {});
    metadata.set("tokenizer.ggml.add_bos_token", true);
    expect_refused(metadata, {"tokenizer.ggml.add_bos_token", "expected false", "found true"});
}

TEST(MakeTokenizer, EmptyTokensGetANameOfTheirOwn) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe({{""}, {""}}, {}));
    EXPECT_EQ(tokenizer->token_text(257), "[EMPTY_257]");
}

TEST(Encode, RefusesTextsThatAreTooLong) {
    const auto tokenizer = text::make_tokenizer(tiny_vocab::bpe({}, {}));
    const auto result = tokenizer->encode(std::string(text::kMaxTextBytes + 1, 'a'));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), text::Errc::text_too_long);
    EXPECT_FALSE(result.error().message().empty());
}

TEST(Encode, ManyThreadsGetTheSameIds) {
    const auto tokenizer =
        text::make_tokenizer(tiny_vocab::bpe({{"ab"}, {"<|x|>", 3}}, {"a b"}, "glm4"));
    const std::string text = "abab 123 <|x|> ab!";
    const auto expected = tokenizer->encode(text, {.parse_special = true}).value();
    std::vector<std::thread> threads;
    std::vector<Ids> results(4);
    for (Ids& result : results)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i)
                result = tokenizer->encode(text, {.parse_special = true}).value();
        });
    for (std::thread& thread : threads) thread.join();
    for (const Ids& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
