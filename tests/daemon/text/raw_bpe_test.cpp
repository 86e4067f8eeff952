// BPE over characters: gemma4, sarvam-moe, granite-embed-multi-311m, whitespace.

#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <gtest/gtest.h>

namespace {

using Ids = std::vector<std::int32_t>;

/// <unk>, <bos>, "<0x00>" to "<0xFF>" (2 to 257), then `more`.
base::Metadata characters(std::string model, const std::vector<tiny_vocab::Token>& more,
                          std::vector<std::string> merges) {
    constexpr char kHex[] = "0123456789ABCDEF";
    std::vector<tiny_vocab::Token> tokens{{"<unk>", 2}, {"<bos>", 3}};
    for (unsigned byte = 0; byte < 256; ++byte)
        tokens.push_back({std::string{"<0x"} + kHex[byte / 16] + kHex[byte % 16] + ">", 6});
    tokens.insert(tokens.end(), more.begin(), more.end());
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::move(model));
    metadata.set("tokenizer.ggml.merges", std::move(merges));
    metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{1});
    metadata.set("tokenizer.ggml.unknown_token_id", std::int64_t{0});
    tiny_vocab::set_tokens(metadata, tokens);
    return metadata;
}

Ids encode(const base::Metadata& metadata, std::string_view text,
           text::EncodeOptions options = {}) {
    return text::make_tokenizer(metadata)->encode(text, options).value();
}

TEST(RawBpe, MergesCharactersAndFallsBackToBytes) {
    const auto metadata =
        characters("gemma4", {{"▁"}, {"é"}, {"a"}, {"▁é"}, {"a▁é"}}, {"▁ é", "a ▁é"});
    EXPECT_EQ(encode(metadata, "a é"), (Ids{262}));
    EXPECT_EQ(encode(metadata, " éa"), (Ids{261, 260}));
    EXPECT_EQ(encode(metadata, "ü"), (Ids{2 + 0xC3, 2 + 0xBC}));
    EXPECT_EQ(text::make_tokenizer(metadata)->token_piece(262), "a é");
}

TEST(RawBpe, MergesThroughCharactersThatAreNoTokens) {
    const auto metadata = characters("gemma4", {{"xy"}}, {"x y"});
    EXPECT_EQ(encode(metadata, "xy"), (Ids{258}));
    EXPECT_EQ(encode(metadata, "x"), (Ids{2 + 'x'}));
}

TEST(RawBpe, LineFeedsAreTakenWholeByGemmaOnly) {
    base::Metadata metadata = characters("gemma4", {{"\n"}, {"\n\n\n"}}, {});
    EXPECT_EQ(encode(metadata, "\n\n\n"), (Ids{259}));
    EXPECT_EQ(encode(metadata, "\n\n"), (Ids{258, 258}));
    metadata.set("tokenizer.ggml.model", std::string{"gpt2"});
    metadata.set("tokenizer.ggml.pre", std::string{"sarvam-moe"});
    EXPECT_EQ(encode(metadata, "\n\n\n"), (Ids{258, 258, 258}));
    metadata.set("tokenizer.ggml.pre", std::string{"granite-embed-multi-311m"});
    EXPECT_EQ(encode(metadata, "\n\n\n"), (Ids{259}));
}

TEST(RawBpe, GemmaAlwaysBeginsWithBos) {
    base::Metadata metadata = characters("gemma4", {{"a"}}, {});
    metadata.set("tokenizer.ggml.add_bos_token", false);
    metadata.set("tokenizer.ggml.pre", std::string{"no such name"});  // not looked at
    EXPECT_EQ(encode(metadata, "a", {.add_special = true}), (Ids{1, 258}));
}

TEST(RawBpe, WhiteSpaceSeparatesOnly) {
    base::Metadata metadata = characters("whitespace", {{"a"}, {"A"}, {"aa"}}, {"a a"});
    EXPECT_EQ(encode(metadata, " aa\t A\n"), (Ids{260, 259}));
    metadata.set("tokenizer.ggml.normalizer.lowercase", true);
    EXPECT_EQ(encode(metadata, "AA A"), (Ids{260, 258}));
    EXPECT_EQ(text::make_tokenizer(metadata)->canonical(" AA A").value(), "aaa");
}

}  // namespace
