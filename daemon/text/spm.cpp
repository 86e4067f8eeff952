#include "daemon/text/spm.hpp"

#include "daemon/text/merge.hpp"
#include "daemon/text/utf8.hpp"

#include <string>
#include <utility>

namespace text {

namespace {

constexpr std::string_view kUnderscore = "\xE2\x96\x81";  // U+2581

class SpmTokenizer final : public Tokenizer {
public:
    explicit SpmTokenizer(TokenizerParts parts) : Tokenizer{std::move(parts)} {}

private:
    base::Result<std::string> canonical_fragment(std::string_view fragment) const override {
        std::string out;
        if (add_space_prefix()) out.push_back(' ');
        return out.append(fragment);
    }

    /// A token that plain text may become: not one that only stands for something else.
    [[nodiscard]] std::int32_t find_plain(std::string_view text) const {
        if (text.size() > vocabulary().max_text_bytes()) return kNoToken;
        const std::int32_t id = find(text);
        const TokenType type = token_type(id);
        return type == TokenType::control || type == TokenType::unknown || type == TokenType::byte
                   ? kNoToken
                   : id;
    }

    boost::system::error_code encode_fragment(std::string_view fragment,
                                              std::vector<std::int32_t>& ids) const override {
        // Every raw fragment is the first one or follows a special token, so each gets the space.
        std::string text;
        text.reserve(fragment.size() + 3);
        if (add_space_prefix()) text.append(kUnderscore);
        for (const char c : fragment) {
            if (c == ' ')
                text.append(kUnderscore);
            else
                text.push_back(c);
        }

        std::vector<Symbol> symbols;
        symbols.reserve(text.size());
        for (std::size_t at = 0; at < text.size();) {
            const std::uint8_t bytes = first_character(std::string_view{text}.substr(at)).bytes;
            const auto i = static_cast<std::int32_t>(symbols.size());
            symbols.push_back({.id = find_plain(std::string_view{text}.substr(at, bytes)),
                               .begin = static_cast<std::uint32_t>(at),
                               .length = bytes,
                               .previous = i - 1,
                               .next = i + 1});
            at += bytes;
        }
        if (!symbols.empty()) symbols.back().next = -1;

        std::vector<MergeCandidate<float>> heap;
        merge_symbols<float>(
            symbols,
            [&](const Symbol& left, const Symbol& right, float& priority, std::int32_t& merged) {
                merged = find_plain(
                    std::string_view{text}.substr(left.begin, left.length + right.length));
                priority = -vocabulary().score(merged);  // highest score first
                return merged != kNoToken;
            },
            heap);

        for (const Symbol& symbol : symbols) {
            if (symbol.length == 0) continue;
            if (symbol.id != kNoToken) {
                ids.push_back(symbol.id);
                continue;
            }
            for (const char c : std::string_view{text}.substr(symbol.begin, symbol.length)) {
                const std::int32_t byte = vocabulary().byte_token(static_cast<unsigned char>(c));
                if (byte != kNoToken)
                    ids.push_back(byte);
                else if (special().unk != kNoToken)
                    ids.push_back(special().unk);
            }
        }
        return {};
    }
};

}  // namespace

std::unique_ptr<Tokenizer> make_spm(TokenizerParts parts) {
    return std::make_unique<SpmTokenizer>(std::move(parts));
}

}  // namespace text
