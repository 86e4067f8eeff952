#include "daemon/text/round_trip.hpp"

#include "tests/daemon/text/golden_vocab.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <gtest/gtest.h>

namespace {

std::string refusal(const base::Metadata& metadata) {
    try {
        text::check_round_trip(*text::make_tokenizer(metadata));
    } catch (const base::ModelError& error) {
        return error.what();
    }
    return "passed";
}

TEST(RoundTrip, WholeVocabulariesPass) {
    EXPECT_EQ(refusal(tiny_vocab::bpe({{"<|endoftext|>", 3}}, {})), "passed");
    EXPECT_EQ(refusal(tiny_vocab::bpe({}, {}, "qwen2")), "passed");  // with NFC
    EXPECT_EQ(refusal(tiny_vocab::spm({{"\u2581"}})), "passed");
}

TEST(RoundTrip, AMissingByteIsNamedWithItsText) {
    base::Metadata metadata = tiny_vocab::bpe({}, {});
    auto tokens = *metadata.find_strings("tokenizer.ggml.tokens");
    tokens['q'] = "something else";
    metadata.set("tokenizer.ggml.tokens", tokens);
    const std::string message = refusal(metadata);
    EXPECT_NE(message.find("The quick brown fox"), std::string::npos) << message;
    EXPECT_NE(message.find("The uick brown fox"), std::string::npos) << message;
    EXPECT_NE(message.find("token 117 \"u\""), std::string::npos) << message;
}

TEST(RoundTrip, ATokenOfTheWrongTypeIsNamed) {
    base::Metadata metadata = tiny_vocab::spm({{"\u2581"}});
    std::vector<std::int64_t> types(260, 6);
    types[0] = 2, types[1] = types[2] = 3, types[259] = 1;
    types[3 + 'q'] = 5;  // unused tokens print nothing
    metadata.set("tokenizer.ggml.token_type", types);
    EXPECT_NE(refusal(metadata).find("token 116 \"<0x71>\""), std::string::npos)
        << refusal(metadata);
}

TEST(RoundTrip, UnknownCharactersAreNoDefectUnlessTheyAreEnglish) {
    std::vector<tiny_vocab::Token> tokens{{"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"\u2581"}};
    for (char c = '!'; c <= '~'; ++c) tokens.push_back({std::string{c}});
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"llama"});
    tiny_vocab::set_tokens(metadata, tokens);
    EXPECT_EQ(refusal(metadata), "passed");
    tokens.resize(tokens.size() - 10);  // without u to ~
    tiny_vocab::set_tokens(metadata, tokens);
    EXPECT_NE(refusal(metadata).find("a token for every letter"), std::string::npos);
}

TEST(RoundTrip, AMarkWhoseTextMeansAnotherTokenIsNamed) {
    // The shorter text begins at the same place; the longer one is found.
    base::Metadata metadata = tiny_vocab::bpe({{"<|im_end|>", 4}}, {});
    EXPECT_EQ(refusal(metadata), "passed");
    base::Metadata phi = tiny_vocab::spm({{"<|end|>", 3}, {"\u2581"}});
    phi.set("tokenizer.ggml.eos_token_id", std::int64_t{259});
    EXPECT_EQ(refusal(phi), "passed");
}

}  // namespace
