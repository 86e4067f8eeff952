// The rules for keys whose meaning the format fixes.

#include "plugins/loader/gguf/conventions.hpp"

#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <gmock/gmock.h>
#include <string>

namespace {

using test_support::GgufWriter;
using testing::HasSubstr;

std::string words(const GgufWriter& writer) {
    const std::string file = writer.bytes();
    const gguf::Header header = loader_test::parse(file);
    return loader_test::refusal([&] { gguf::check_conventions(header, "m.gguf"); });
}

GgufWriter model() {
    GgufWriter w;
    w.string("general.architecture", "some-arch2");
    return w;
}

GgufWriter with_tokens() {
    return model().strings("tokenizer.ggml.tokens", {"a", "b", "a", "c"});
}

TEST(GgufConventions, ArchitectureIsAShortPlainName) {
    EXPECT_EQ(words(model()), "");
    EXPECT_THAT(words(GgufWriter{}.value("x", 1)), HasSubstr("general.architecture\" is missing"));
    EXPECT_THAT(words(GgufWriter{}.value("general.architecture", 1)),
                HasSubstr("expected a string, found i32"));
    for (const char* bad : {"", "Llama", "a.b", "a b", "../etc", "l\xc3\xa4ma"})
        EXPECT_THAT(words(GgufWriter{}.string("general.architecture", bad)),
                    HasSubstr("bad architecture name"))
            << bad;
    EXPECT_EQ(words(GgufWriter{}.string("general.architecture", std::string(64, 'a'))), "");
    EXPECT_NE(words(GgufWriter{}.string("general.architecture", std::string(65, 'a'))), "");
}

TEST(GgufConventions, IntegersOfAnyWidthAreTakenInRange) {
    EXPECT_EQ(words(model().value("some-arch2.block_count", std::uint64_t{512})), "");
    EXPECT_EQ(words(model().value("some-arch2.block_count", std::int8_t{1})), "");
    EXPECT_THAT(words(model().value("some-arch2.block_count", std::uint32_t{513})),
                HasSubstr("expected 1 to 512, found 513"));
    EXPECT_THAT(words(model().value("some-arch2.block_count", UINT64_MAX)),
                HasSubstr("found 2^63 or more"));
    EXPECT_THAT(words(model().value("some-arch2.block_count", 2.0f)),
                HasSubstr("expected an integer, found f32"));
    EXPECT_THAT(words(model().value("some-arch2.embedding_length", 0)), HasSubstr("bad value"));
    EXPECT_THAT(words(model().value("some-arch2.expert_count", 1025)), HasSubstr("bad value"));
    EXPECT_THAT(
        words(model().value("some-arch2.expert_count", 8).value("some-arch2.expert_used_count", 9)),
        HasSubstr("expected 0 to 8, found 9"));
    // The key of another architecture means nothing here.
    EXPECT_EQ(words(model().value("other.block_count", 0)), "");
}

TEST(GgufConventions, HeadsDivideAndLayersAreCounted) {
    const auto heads = [](int q, int kv) {
        return words(model()
                         .value("some-arch2.attention.head_count", q)
                         .value("some-arch2.attention.head_count_kv", kv));
    };
    EXPECT_EQ(heads(8, 2), "");
    EXPECT_EQ(heads(64, 1), "");
    EXPECT_THAT(heads(8, 3), HasSubstr("expected a divisor of the 8 heads, found 3"));
    EXPECT_THAT(heads(8, 0), HasSubstr("bad value"));
    EXPECT_THAT(heads(0, 1), HasSubstr("bad value"));

    const auto per_layer = [](std::vector<std::int32_t> kv_heads) {
        return words(model()
                         .value("some-arch2.block_count", 4)
                         .value("some-arch2.nextn_predict_layers", 1)
                         .value("some-arch2.attention.head_count", 8)
                         .array("some-arch2.attention.head_count_kv", kv_heads));
    };
    EXPECT_EQ(per_layer({2, 0, 4, 8}), "");  // 0: a layer without attention
    EXPECT_EQ(per_layer({2, 0, 4}), "");     // without the layer that predicts ahead
    EXPECT_THAT(per_layer({2, 2}), HasSubstr("each of 4 layers, found 2"));
    EXPECT_THAT(per_layer({2, 2, 3, 2}), HasSubstr("found 3"));
    EXPECT_THAT(per_layer({2, 2, -1, 2}), HasSubstr("found -1 as item 2"));
}

TEST(GgufConventions, TokenizerArraysMatchTheVocabulary) {
    EXPECT_EQ(words(with_tokens()
                        .array<float>("tokenizer.ggml.scores", {0, 0, 0, 0})
                        .array<std::int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 1, 1})
                        .value("tokenizer.ggml.eos_token_id", std::uint32_t{3})
                        .array<std::int32_t>("tokenizer.ggml.suppress_tokens", {0, 3})),
              "");  // a token may occur twice, and arrays may be longer
    EXPECT_THAT(words(with_tokens().array<std::uint8_t>("tokenizer.ggml.scores", {0, 0, 0, 0})),
                HasSubstr("expected an array of f32, found an array of u8"));
    EXPECT_THAT(words(with_tokens().array<float>("tokenizer.ggml.scores", {0, 0, 0})),
                HasSubstr("each of 4 tokens, found 3"));
    EXPECT_THAT(words(with_tokens().value("tokenizer.ggml.scores", 1.0f)), HasSubstr("found f32"));
    EXPECT_THAT(words(with_tokens().array<float>("tokenizer.ggml.token_type", {1, 1, 1, 1})),
                HasSubstr("expected an array of integers, found an array of f32"));
    EXPECT_THAT(words(with_tokens().value("tokenizer.ggml.bos_token_id", std::uint32_t{4})),
                HasSubstr("expected 0 to 3, found 4"));
    EXPECT_THAT(words(with_tokens().value("tokenizer.ggml.eot_token_id", std::int32_t{-1})),
                HasSubstr("found -1"));
    EXPECT_THAT(words(with_tokens().string("tokenizer.ggml.bos_token_id", "a")),
                HasSubstr("expected an integer, found string"));
    EXPECT_THAT(words(with_tokens().array<std::int32_t>("tokenizer.ggml.suppress_tokens", {4})),
                HasSubstr("found 4 as item 0"));
    EXPECT_THAT(words(model().array<std::uint32_t>("tokenizer.ggml.tokens", {1})),
                HasSubstr("found an array of u32"));
}

TEST(GgufConventions, MergesHaveTwoParts) {
    const auto merges = [](std::string merge) {
        return words(model().strings("tokenizer.ggml.merges", {"a b", std::move(merge)}));
    };
    EXPECT_EQ(merges("ab c"), "");
    EXPECT_EQ(merges("  b"), "");  // the left part is a space itself
    for (const char* bad : {"ab", "", "a ", " b", " "})
        EXPECT_THAT(merges(bad), HasSubstr("as item 1")) << '"' << bad << '"';
}

TEST(GgufConventions, CharacterMapIsAsLongAsItSays) {
    const auto map = [](std::vector<std::uint8_t> bytes) {
        return words(model().array("tokenizer.ggml.precompiled_charsmap", bytes));
    };
    EXPECT_EQ(map({}), "");
    EXPECT_EQ(map({2, 0, 0, 0, 9, 9}), "");
    EXPECT_EQ(map({2, 0, 0, 0, 9, 9, 'x', 0}), "");
    EXPECT_THAT(map({3, 0, 0, 0, 9, 9}), HasSubstr("expected 7 bytes, found 6"));
    EXPECT_THAT(map({255, 255, 255, 255, 9, 9}), HasSubstr("expected 4294967299 bytes, found 6"));
    EXPECT_THAT(map({1, 0, 0}), HasSubstr("found 3"));
}

}  // namespace
