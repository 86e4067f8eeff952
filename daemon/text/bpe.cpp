#include "daemon/text/bpe.hpp"

#include "daemon/text/byte_map.hpp"
#include "daemon/text/merge.hpp"
#include "daemon/text/nfc.hpp"
#include "daemon/text/pretokenizer.hpp"
#include "daemon/text/utf8.hpp"

#include <string>
#include <utility>

namespace text {

namespace {

class BpeTokenizer final : public Tokenizer {
public:
    BpeTokenizer(TokenizerParts parts, MergeTable merges, const PretokenizerRow& row,
                 TokenizerOptions options)
        : Tokenizer{std::move(parts)},
          merges_{std::move(merges)},
          pretokenizer_{row},
          ignore_merges_{row.ignore_merges},
          nfc_{row.nfc && options.normalize_nfc} {}

private:
    struct Scratch {
        std::vector<Symbol> symbols;
        std::vector<MergeCandidate<std::int32_t>> heap;
        std::string mapped;
    };

    boost::system::error_code encode_fragment(std::string_view fragment,
                                              std::vector<std::int32_t>& ids) const override {
        std::string changed;  // the fragment, where it has to be repaired or normalized
        if (!is_valid_utf8(fragment)) {
            changed = repair_utf8(fragment);
            fragment = changed;
        }
        if (nfc_ && !is_nfc_for_sure(fragment)) {
            changed = to_nfc(fragment);
            fragment = changed;
        }
        std::vector<std::string_view> pieces;
        if (const auto error = pretokenizer_.split(fragment, pieces)) return error;
        Scratch scratch;
        for (const std::string_view piece : pieces) encode_piece(piece, scratch, ids);
        return {};
    }

    /// The token whose text is the whole piece; control tokens are never meant by plain text.
    [[nodiscard]] std::int32_t whole_piece(std::string_view piece, std::string& mapped) const {
        mapped.clear();
        for (const char c : piece) mapped.append(byte_to_character(static_cast<unsigned char>(c)));
        const std::int32_t id = vocabulary().find(mapped);
        return vocabulary().type(id) == TokenType::control ? kNoToken : id;
    }

    void encode_piece(std::string_view piece, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
        if (ignore_merges_) {
            if (const std::int32_t id = whole_piece(piece, scratch.mapped); id != kNoToken) {
                ids.push_back(id);
                return;
            }
        }

        auto& symbols = scratch.symbols;
        const auto n = static_cast<std::int32_t>(piece.size());
        symbols.resize(piece.size());
        for (std::int32_t i = 0; i < n; ++i) {
            const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
            symbols[static_cast<std::size_t>(i)] = {.id = merges_.byte_symbol(byte),
                                                    .begin = static_cast<std::uint32_t>(i),
                                                    .length = 1,
                                                    .previous = i - 1,
                                                    .next = i + 1 < n ? i + 1 : -1};
        }
        merge_symbols<std::int32_t>(
            symbols,
            [this](const Symbol& left, const Symbol& right, std::int32_t& rank,
                   std::int32_t& merged) {
                const MergeTable::Merge merge = merges_.find(left.id, right.id);
                rank = merge.rank;
                merged = merge.merged;
                return merge.rank >= 0;
            },
            scratch.heap);

        for (const Symbol& symbol : symbols) {
            if (symbol.length == 0) continue;
            if (vocabulary().contains(symbol.id)) {
                ids.push_back(symbol.id);
                continue;
            }
            // A merge result without a token: its characters, as far as they are tokens.
            for (const char c : piece.substr(symbol.begin, symbol.length))
                if (const std::int32_t id = merges_.byte_symbol(static_cast<unsigned char>(c));
                    vocabulary().contains(id))
                    ids.push_back(id);
        }
    }

    MergeTable merges_;
    Pretokenizer pretokenizer_;
    bool ignore_merges_;
    bool nfc_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe(TokenizerParts parts, MergeTable merges,
                                    const PretokenizerRow& row, TokenizerOptions options) {
    return std::make_unique<BpeTokenizer>(std::move(parts), std::move(merges), row, options);
}

}  // namespace text
