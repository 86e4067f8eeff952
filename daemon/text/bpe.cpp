#include "daemon/text/bpe.hpp"

#include "daemon/text/byte_map.hpp"
#include "daemon/text/lowercase.hpp"
#include "daemon/text/merge.hpp"
#include "daemon/text/nfc.hpp"
#include "daemon/text/pretokenizer.hpp"
#include "daemon/text/utf8.hpp"

#include <string>
#include <utility>

namespace text {

namespace {

constexpr std::string_view kUnderscore = "\xE2\x96\x81";  // U+2581

class BpeTokenizer final : public Tokenizer {
public:
    BpeTokenizer(TokenizerParts parts, MergeTable merges, const PretokenizerRow& row,
                 BpeOptions options)
        : Tokenizer{std::move(parts)},
          merges_{std::move(merges)},
          pretokenizer_{row},
          row_{row},
          options_{options} {}

private:
    base::Result<std::string> canonical_fragment(std::string_view fragment) const override {
        std::string changed;
        const std::string_view text = prepare(fragment, changed, Spelling::byte_map);
        if (row_.spelling != Spelling::plain) return std::string{text};
        std::vector<std::string_view> pieces;
        if (const auto error = pretokenizer_.split(text, pieces)) return error;
        std::string out;
        for (const std::string_view piece : pieces)
            if (!is_left_out(piece)) out.append(piece);
        return out;
    }

    struct Scratch {
        std::vector<Symbol> symbols;
        std::vector<MergeCandidate<std::int32_t>> heap;
        std::string mapped;
    };

    /// The fragment repaired and normalized, its spaces spelled as the vocabulary does.
    /// @param changed  holds the result where it differs
    std::string_view prepare(std::string_view fragment, std::string& changed,
                             Spelling spelling) const {
        if (!is_valid_utf8(fragment)) fragment = changed = repair_utf8(fragment);
        if (options_.nfc && !is_nfc_for_sure(fragment)) fragment = changed = to_nfc(fragment);
        if (options_.lowercase) fragment = changed = to_lowercase(fragment);
        if (spelling != Spelling::underscore || fragment.find(' ') == fragment.npos)
            return fragment;
        std::string spelled;
        for (const char c : fragment) {
            if (c == ' ')
                spelled.append(kUnderscore);
            else
                spelled.push_back(c);
        }
        return changed = std::move(spelled);
    }

    /// White space between words, where it is no part of the text. A piece is all of it, or none.
    [[nodiscard]] bool is_left_out(std::string_view piece) const {
        if (row_.spelling != Spelling::plain) return false;
        const auto is_space = space_.matches(piece);
        return is_space && *is_space;
    }

    boost::system::error_code encode_fragment(std::string_view fragment,
                                              std::vector<std::int32_t>& ids) const override {
        std::string changed;
        std::vector<std::string_view> pieces;
        const std::string_view text = prepare(fragment, changed, row_.spelling);
        if (const auto error = pretokenizer_.split(text, pieces)) return error;
        Scratch scratch;
        for (const std::string_view piece : pieces)
            if (!is_left_out(piece)) encode_piece(piece, scratch, ids);
        return {};
    }

    /// The token whose text is the whole piece; control tokens are never meant by plain text.
    [[nodiscard]] std::int32_t whole_piece(std::string_view piece, std::string& mapped) const {
        mapped.clear();
        if (row_.spelling == Spelling::byte_map)
            for (const char c : piece)
                mapped.append(byte_to_character(static_cast<unsigned char>(c)));
        else
            mapped.assign(piece);
        const std::int32_t id = vocabulary().find(mapped);
        return vocabulary().type(id) == TokenType::control ? kNoToken : id;
    }

    void begin_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
        symbols.clear();
        for (std::size_t at = 0; at < piece.size();) {
            Symbol symbol{.begin = static_cast<std::uint32_t>(at), .length = 1};
            if (row_.spelling == Spelling::byte_map) {
                symbol.id = merges_.byte_symbol(static_cast<unsigned char>(piece[at]));
            } else {
                symbol.length = first_character(piece.substr(at)).bytes;
                symbol.id = merges_.character_symbol(vocabulary(), piece.substr(at, symbol.length));
            }
            symbol.previous = static_cast<std::int32_t>(symbols.size()) - 1;
            symbol.next = symbol.previous + 2;
            at += symbol.length;
            symbols.push_back(symbol);
        }
        if (!symbols.empty()) symbols.back().next = -1;
    }

    void encode_piece(std::string_view piece, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
        if (row_.ignore_merges || (row_.whole_newlines && piece.front() == '\n')) {
            if (const std::int32_t id = whole_piece(piece, scratch.mapped); id != kNoToken) {
                ids.push_back(id);
                return;
            }
        }
        begin_symbols(piece, scratch.symbols);
        merge_symbols<std::int32_t>(
            scratch.symbols,
            [this](const Symbol& left, const Symbol& right, std::int32_t& rank,
                   std::int32_t& merged) {
                const MergeTable::Merge merge = merges_.find(left.id, right.id);
                rank = merge.rank;
                merged = merge.merged;
                return merge.rank >= 0;
            },
            scratch.heap);
        for (const Symbol& symbol : scratch.symbols) {
            if (symbol.length == 0) continue;
            if (vocabulary().contains(symbol.id))
                ids.push_back(symbol.id);
            else
                append_parts(piece.substr(symbol.begin, symbol.length), ids);
        }
    }

    /// A symbol that is no token: its characters, as far as they are tokens; where merges begin
    /// with characters, the others' bytes.
    void append_parts(std::string_view symbol, std::vector<std::int32_t>& ids) const {
        const auto append = [&](std::int32_t id) {
            if (!vocabulary().contains(id)) return false;
            ids.push_back(id);
            return true;
        };
        if (row_.spelling == Spelling::byte_map) {
            for (const char c : symbol) append(merges_.byte_symbol(static_cast<unsigned char>(c)));
            return;
        }
        while (!symbol.empty()) {
            const std::string_view character = symbol.substr(0, first_character(symbol).bytes);
            symbol.remove_prefix(character.size());
            if (append(vocabulary().find(character))) continue;
            for (const char c : character)
                if (!append(vocabulary().byte_token(static_cast<unsigned char>(c))))
                    append(special().unk);
        }
    }

    MergeTable merges_;
    Pretokenizer pretokenizer_;
    const PretokenizerRow& row_;  // of the one table
    BpeOptions options_;
    Regex space_{R"(\s)"};
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe(TokenizerParts parts, MergeTable merges,
                                    const PretokenizerRow& row, BpeOptions options) {
    return std::make_unique<BpeTokenizer>(std::move(parts), std::move(merges), row, options);
}

}  // namespace text
