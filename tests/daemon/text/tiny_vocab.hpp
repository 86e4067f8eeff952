#pragma once

#include "daemon/base/metadata.hpp"
#include "daemon/text/byte_map.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// Vocabularies of a few tokens, for tests that check one rule each.
namespace tiny_vocab {

struct Token {
    std::string text;
    std::int64_t type = 1;
    double score = 0;
};

inline void set_tokens(base::Metadata& metadata, const std::vector<Token>& tokens) {
    std::vector<std::string> texts;
    std::vector<std::int64_t> types;
    std::vector<double> scores;
    for (const Token& token : tokens) {
        texts.push_back(token.text);
        types.push_back(token.type);
        scores.push_back(token.score);
    }
    metadata.set("tokenizer.ggml.tokens", std::move(texts));
    metadata.set("tokenizer.ggml.token_type", std::move(types));
    metadata.set("tokenizer.ggml.scores", std::move(scores));
}

/// <unk>, <s>, </s>, the 256 byte tokens (3 to 258), then `more`.
inline base::Metadata spm(
    const std::vector<Token>& more = {
        {"\u2581", 1, -1}, {"a", 1, -2}, {"b", 1, -3}, {"ab", 1, -4}, {"\u2581ab", 1, -5}}) {
    constexpr char kHex[] = "0123456789ABCDEF";
    std::vector<Token> tokens{{"<unk>", 2}, {"<s>", 3}, {"</s>", 3}};
    for (unsigned byte = 0; byte < 256; ++byte)
        tokens.push_back({std::string{"<0x"} + kHex[byte / 16] + kHex[byte % 16] + ">", 6});
    tokens.insert(tokens.end(), more.begin(), more.end());
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"llama"});
    set_tokens(metadata, tokens);
    return metadata;
}

/// The 256 byte-mapped characters (the id is the byte), then `more`.
inline base::Metadata bpe(const std::vector<Token>& more, std::vector<std::string> merges,
                          std::string pre = "gpt-2") {
    std::vector<Token> tokens;
    for (unsigned byte = 0; byte < 256; ++byte)
        tokens.push_back({std::string{text::byte_to_character(static_cast<unsigned char>(byte))}});
    tokens.insert(tokens.end(), more.begin(), more.end());
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"gpt2"});
    metadata.set("tokenizer.ggml.pre", std::move(pre));
    metadata.set("tokenizer.ggml.merges", std::move(merges));
    set_tokens(metadata, tokens);
    return metadata;
}

}  // namespace tiny_vocab
