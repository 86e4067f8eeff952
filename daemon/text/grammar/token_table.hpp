#pragma once

#include "daemon/text/grammar/string_body.hpp"
#include "daemon/text/grammar/token_set.hpp"
#include "daemon/text/grammar/token_trie.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace text {
class Tokenizer;
}

namespace grammar {

/// A token that prints only where marks do: a control token.
struct ControlToken {
    std::int32_t token = 0;
    std::string text;
};

/// What a vocabulary consists of, for constrained decoding.
struct TokenSource {
    std::vector<std::string>
        pieces;  ///< [vocab_size] the bytes a token prints as; "": never allowed
    std::vector<ControlToken> controls;  ///< end-of-generation tokens left out
    std::vector<std::int32_t> eog;       ///< ascending
};

/// A vocabulary arranged for masks: as a tree, and what each token does inside of a JSON string,
/// which is where masks are large and the same for all schemas.
///
/// Immutable; any thread.
class TokenTable {
public:
    /// Tokens that may follow in one state of StringBody.
    struct StringTokens {
        TokenSet inside;  ///< all that stay inside of the string
        std::vector<TokenSet>
            by_chars;  ///< [n]: of those, the ones that begin n further characters
        /// Those that close the string: what they print behind the quote, and how many characters
        /// they complete before it. A token that ends with the quote has no bytes here: see
        /// `closing`.
        TokenTrie behind;
        std::vector<TokenSet> closing;  ///< [n]: tokens that end with the quote after n characters
    };

    explicit TokenTable(TokenSource source);
    /// Ordinary tokens as they print, without the ones that are never to be sampled.
    explicit TokenTable(const text::Tokenizer& tokenizer);

    [[nodiscard]] std::int32_t vocab_size() const { return vocab_size_; }
    [[nodiscard]] const std::vector<std::int32_t>& eog() const { return eog_; }
    [[nodiscard]] bool is_eog(std::int32_t token) const;
    [[nodiscard]] const std::vector<ControlToken>& controls() const { return controls_; }
    /// The control token, or null.
    [[nodiscard]] const ControlToken* find_control(std::int32_t token) const;
    /// Whether one token, ordinary or control, prints as this text.
    [[nodiscard]] bool has_token(std::string_view text) const;
    /// "" for a token that is never allowed, and for control tokens.
    [[nodiscard]] std::string_view piece(std::int32_t token) const;
    [[nodiscard]] const TokenTrie& trie() const { return trie_; }
    [[nodiscard]] const StringTokens& string_tokens(std::uint32_t state) const {
        return string_tokens_[state];
    }
    /// A byte of JSON text that no token prints by itself, so that a grammar might get stuck; none
    /// in usable vocabularies.
    [[nodiscard]] std::optional<std::uint8_t> missing_byte() const;
    [[nodiscard]] std::size_t num_bytes() const;

private:
    void build_string_tokens(std::uint32_t state);

    std::int32_t vocab_size_ = 0;
    std::vector<std::string> pieces_;
    std::vector<ControlToken> controls_;  // by token
    std::vector<std::int32_t> eog_;
    TokenTrie trie_;
    std::array<StringTokens, StringBody::kNumStates> string_tokens_;
};

}  // namespace grammar
