#include "daemon/text/grammar/token_table.hpp"

#include "daemon/text/tokenizer.hpp"

#include <algorithm>

namespace grammar {

namespace {

constexpr std::size_t kMaxPieceBytes = 1024;  // longer ones are never allowed

TokenSource source_of(const text::Tokenizer& tokenizer) {
    TokenSource source;
    source.eog = tokenizer.eog_ids();
    source.pieces.resize(static_cast<std::size_t>(tokenizer.vocab_size()));
    const auto& suppressed = tokenizer.suppressed_ids();
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        if (tokenizer.is_eog(id) || std::ranges::find(suppressed, id) != suppressed.end()) continue;
        if (tokenizer.token_type(id) == text::TokenType::control)
            source.controls.push_back({id, std::string{tokenizer.token_piece(id, true)}});
        else
            source.pieces[static_cast<std::size_t>(id)] = tokenizer.token_piece(id);
    }
    return source;
}

}  // namespace

TokenTable::TokenTable(const text::Tokenizer& tokenizer) : TokenTable{source_of(tokenizer)} {}

TokenTable::TokenTable(TokenSource source)
    : vocab_size_{static_cast<std::int32_t>(source.pieces.size())},
      pieces_{std::move(source.pieces)},
      controls_{std::move(source.controls)},
      eog_{std::move(source.eog)} {
    std::vector<TokenTrie::Entry> entries;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        std::string& piece = pieces_[i];
        if (piece.size() > kMaxPieceBytes || is_eog(static_cast<std::int32_t>(i))) piece.clear();
        if (!piece.empty()) entries.push_back({piece, static_cast<std::int32_t>(i)});
    }
    trie_ = TokenTrie{std::move(entries)};
    std::ranges::sort(controls_, {}, &ControlToken::token);
    for (std::uint32_t state = 0; state < StringBody::kNumStates; ++state)
        build_string_tokens(state);
}

void TokenTable::build_string_tokens(std::uint32_t from) {
    struct At {
        std::uint32_t state, chars;
    };
    using Move = StringBody::Move;
    StringTokens& out = string_tokens_[from];
    std::vector<std::int32_t> inside;
    std::vector<std::vector<std::int32_t>> by_chars, closing;
    std::vector<TokenTrie::Entry> behind;
    const auto add = [](auto& lists, std::uint32_t n, std::int32_t token) {
        if (lists.size() <= n) lists.resize(n + 1);
        lists[n].push_back(token);
    };
    std::vector<At> path(trie_.max_depth() + 1U);
    path[0] = {from, 0};
    for (std::uint32_t i = 1; i < trie_.num_nodes();) {
        const auto& node = trie_.node(i);
        const At at = path[node.depth - 1U];
        const auto step = StringBody::step(at.state, node.byte);
        if (step.move == Move::none) {
            i = node.end;
        } else if (step.move == Move::close) {
            for (const auto& token : trie_.tokens_at(i)) add(closing, at.chars, token.id);
            for (const auto& token : trie_.tokens_between(i + 1, node.end))
                behind.push_back({piece(token.id).substr(node.depth), token.id, at.chars});
            i = node.end;
        } else {
            const At next{step.state, at.chars + (step.move == Move::complete ? 1U : 0U)};
            path[node.depth] = next;
            const std::uint32_t begun = next.chars + (next.state == StringBody::kStart ? 0U : 1U);
            for (const auto& token : trie_.tokens_at(i)) {
                inside.push_back(token.id);
                add(by_chars, begun, token.id);
            }
            ++i;
        }
    }
    out.inside = TokenSet{std::move(inside), vocab_size_};
    for (auto& tokens : by_chars) out.by_chars.emplace_back(std::move(tokens), vocab_size_);
    for (auto& tokens : closing) out.closing.emplace_back(std::move(tokens), vocab_size_);
    out.behind = TokenTrie{std::move(behind)};
}

bool TokenTable::is_eog(std::int32_t token) const {
    return std::ranges::binary_search(eog_, token);
}

const ControlToken* TokenTable::find_control(std::int32_t token) const {
    const auto at = std::ranges::lower_bound(controls_, token, {}, &ControlToken::token);
    return at != controls_.end() && at->token == token ? &*at : nullptr;
}

bool TokenTable::has_token(std::string_view text) const {
    return std::ranges::find(controls_, text, &ControlToken::text) != controls_.end() ||
           std::ranges::find(pieces_, text) != pieces_.end();
}

std::string_view TokenTable::piece(std::int32_t token) const {
    return token >= 0 && token < vocab_size_
               ? std::string_view{pieces_[static_cast<std::size_t>(token)]}
               : std::string_view{};
}

std::optional<std::uint8_t> TokenTable::missing_byte() const {
    std::array<bool, 256> is_spelled{};
    for (std::uint32_t i = 1; i < trie_.num_nodes(); i = trie_.node(i).end)
        is_spelled[trie_.node(i).byte] = !trie_.tokens_at(i).empty();
    for (unsigned byte = 0x20; byte < 0xF5; ++byte)
        if (byte != 0x7F && byte != 0xC0 && byte != 0xC1 && !is_spelled[byte])
            return static_cast<std::uint8_t>(byte);
    return std::nullopt;
}

std::size_t TokenTable::num_bytes() const {
    std::size_t out = trie_.num_bytes();
    for (const std::string& piece : pieces_) out += sizeof piece + piece.size();
    for (const StringTokens& tokens : string_tokens_) {
        out += tokens.inside.num_bytes() + tokens.behind.num_bytes();
        for (const TokenSet& set : tokens.by_chars) out += set.num_bytes();
        for (const TokenSet& set : tokens.closing) out += set.num_bytes();
    }
    return out;
}

}  // namespace grammar
