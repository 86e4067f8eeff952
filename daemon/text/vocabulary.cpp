#include "daemon/text/vocabulary.hpp"

#include "daemon/base/error.hpp"
#include "daemon/text/byte_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace text {

namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/// "<0x0A>" is the byte 0x0A; -1 for any other text.
int parse_byte_token(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string underscores_to_spaces(std::string_view text) {
    constexpr std::string_view kUnderscore = "\xE2\x96\x81";  // U+2581
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0;;) {
        const std::size_t hit = text.find(kUnderscore, at);
        out.append(text.substr(at, hit - at));
        if (hit == std::string_view::npos) return out;
        out.push_back(' ');
        at = hit + kUnderscore.size();
    }
}

[[noreturn]] void refuse_length(std::string_view key, std::size_t found, std::size_t wanted) {
    throw base::ModelError{std::string{key} + ": expected " + std::to_string(wanted) +
                           " items, one a token, found " + std::to_string(found)};
}

}  // namespace

Vocabulary::Vocabulary(const base::Metadata& metadata, PieceStyle style) : style_{style} {
    const std::vector<std::string>* tokens = metadata.find_strings(kTokensKey);
    if (tokens == nullptr || tokens->empty())
        throw base::ModelError{std::string{kTokensKey} + ": expected an array of strings, found " +
                               (tokens == nullptr ? "no such key" : "an empty one")};
    if (tokens->size() > std::numeric_limits<std::int32_t>::max())
        throw base::ModelError{std::string{kTokensKey} +
                               ": expected at most 2147483647 tokens, found " +
                               std::to_string(tokens->size())};
    tokens_ = *tokens;
    const std::size_t n = tokens_.size();

    types_.assign(n, TokenType::normal);
    if (const auto types = metadata.find_ints(kTypesKey)) {
        if (types->size() < n) refuse_length(kTypesKey, types->size(), n);
        for (std::size_t i = 0; i < n; ++i) {
            const std::int64_t type = (*types)[i];
            types_[i] =
                type >= 0 && type <= 6 ? static_cast<TokenType>(type) : TokenType::undefined;
        }
    }

    scores_.assign(n, 0.0f);
    if (const auto scores = metadata.find_floats(kScoresKey)) {
        if (scores->size() < n) refuse_length(kScoresKey, scores->size(), n);
        for (std::size_t i = 0; i < n; ++i) {
            scores_[i] = static_cast<float>((*scores)[i]);
            if (std::isnan(scores_[i]))
                throw base::ModelError{std::string{kScoresKey} +
                                       ": expected numbers, found NaN at token " +
                                       std::to_string(i)};
        }
    }

    ids_.reserve(n);
    pieces_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto id = static_cast<std::int32_t>(i);
        if (tokens_[i].empty()) tokens_[i] = "[EMPTY_" + std::to_string(i) + "]";
        const auto [known, is_new] = ids_.try_emplace(tokens_[i], id);
        if (!is_new)
            throw base::ModelError{std::string{kTokensKey} + ": expected distinct texts, found \"" +
                                   tokens_[i] + "\" as token " + std::to_string(known->second) +
                                   " and as token " + std::to_string(i)};
        max_text_bytes_ = std::max(max_text_bytes_, tokens_[i].size());
        set_piece(id);
    }
}

std::string_view Vocabulary::text(std::int32_t id) const noexcept {
    return contains(id) ? std::string_view{tokens_[static_cast<std::size_t>(id)]}
                        : std::string_view{};
}

TokenType Vocabulary::type(std::int32_t id) const noexcept {
    return contains(id) ? types_[static_cast<std::size_t>(id)] : TokenType::undefined;
}

float Vocabulary::score(std::int32_t id) const noexcept {
    return contains(id) ? scores_[static_cast<std::size_t>(id)] : 0.0f;
}

std::string_view Vocabulary::piece(std::int32_t id, bool render_special) const noexcept {
    const TokenType t = type(id);
    if (!contains(id)) return {};
    if (!render_special && (t == TokenType::control || t == TokenType::unknown)) return {};
    return pieces_[static_cast<std::size_t>(id)];
}

std::int32_t Vocabulary::find(std::string_view text) const noexcept {
    const auto found = ids_.find(text);
    return found == ids_.end() ? kNoToken : found->second;
}

std::int32_t Vocabulary::byte_token(unsigned char byte) const noexcept {
    constexpr char kHex[] = "0123456789ABCDEF";
    const char spelled[] = {'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'};
    const std::int32_t id = find(std::string_view{spelled, sizeof spelled});
    if (id != kNoToken) return id;
    const char itself = static_cast<char>(byte);
    return find(std::string_view{&itself, 1});
}

void Vocabulary::set_type(std::int32_t id, TokenType type) {
    types_[static_cast<std::size_t>(id)] = type;
    set_piece(id);
}

void Vocabulary::set_piece(std::int32_t id) {
    const auto i = static_cast<std::size_t>(id);
    const std::string& text = tokens_[i];
    switch (types_[i]) {
        case TokenType::normal:
            pieces_[i] = style_ == PieceStyle::byte_map     ? unmap_bytes(text)
                         : style_ == PieceStyle::underscore ? underscores_to_spaces(text)
                                                            : text;
            break;
        case TokenType::byte:
            if (const int byte = parse_byte_token(text); byte >= 0)
                pieces_[i].assign(1, static_cast<char>(byte));
            else
                pieces_[i] = text;
            break;
        case TokenType::user_defined:
        case TokenType::control:
        case TokenType::unknown:
            pieces_[i] = text;
            break;
        case TokenType::undefined:
        case TokenType::unused:
            pieces_[i].clear();
            break;
    }
}

}  // namespace text
