#include "daemon/text/wpm.hpp"

#include "daemon/text/lowercase.hpp"
#include "daemon/text/nfc.hpp"
#include "daemon/text/prefix_index.hpp"
#include "daemon/text/regex.hpp"
#include "daemon/text/utf8.hpp"

#include <string>
#include <utility>

namespace text {

namespace {

// Neither words nor between words: they vanish. White space among the controls separates, though.
constexpr std::string_view kDropped = R"re([\x{0}\x{FFFD}]|(?!\s)[\p{Cc}\p{Cf}\p{Co}])re";

// A word each: punctuation, ASCII symbols, and the ideographs of the reference's own ranges.
constexpr std::string_view kWordBreaks =
    R"re(\s+|[\p{P}$+<=>^`|~]|[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}])re";

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581

class WpmTokenizer final : public Tokenizer {
public:
    WpmTokenizer(TokenizerParts parts, WpmOptions options)
        : Tokenizer{std::move(parts)}, index_{vocabulary()}, options_{options} {}

private:
    base::Result<std::string> canonical_fragment(std::string_view fragment) const override {
        std::string normal;
        std::vector<std::string_view> words;
        if (const auto error = split(fragment, normal, words)) return error;
        std::string out;
        for (const std::string_view word : words) out.append(" ").append(word);
        return out;
    }

    /// The words of a text, as views into `normal`.
    boost::system::error_code split(std::string_view fragment, std::string& normal,
                                    std::vector<std::string_view>& words) const {
        normal = is_valid_utf8(fragment) ? std::string{fragment} : repair_utf8(fragment);
        if (const auto error = dropped_.erase_from(normal)) return error;
        if (options_.strip_accents) {
            normal = to_nfd(normal);
            if (const auto error = accents_.erase_from(normal)) return error;
        }
        if (options_.lowercase) normal = to_lowercase(normal);
        std::vector<std::string_view> pieces;
        if (!normal.empty())
            if (const auto error = breaks_.split(normal, pieces)) return error;
        for (const std::string_view piece : pieces) {
            const auto is_space = space_.matches(piece);  // a piece is all white space, or none
            if (!is_space) return is_space.error();
            if (!*is_space) words.push_back(piece);
        }
        return {};
    }

    boost::system::error_code encode_fragment(std::string_view fragment,
                                              std::vector<std::int32_t>& ids) const override {
        std::string normal, marked;
        std::vector<std::string_view> words;
        if (const auto error = split(fragment, normal, words)) return error;
        for (const std::string_view word : words) {
            marked.assign(kWordStart).append(word);
            encode_word(marked, ids);
        }
        return {};
    }

    void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
        const std::size_t begin = ids.size();
        while (!word.empty()) {
            std::int32_t longest = kNoToken;
            std::size_t bytes = 0;
            index_.for_each_prefix(word, [&](std::int32_t id, std::size_t n) {
                longest = id;
                bytes = n;
            });
            if (longest == kNoToken) {
                ids.resize(begin);
                if (special().unk != kNoToken) ids.push_back(special().unk);
                return;
            }
            ids.push_back(longest);
            word.remove_prefix(bytes);
        }
    }

    PrefixIndex index_;
    WpmOptions options_;
    Regex dropped_{kDropped};
    Regex accents_{R"(\p{Mn}+)"};
    Regex breaks_{kWordBreaks};
    Regex space_{R"(\s)"};
};

}  // namespace

std::unique_ptr<Tokenizer> make_wpm(TokenizerParts parts, WpmOptions options) {
    return std::make_unique<WpmTokenizer>(std::move(parts), options);
}

}  // namespace text
