#include "daemon/text/ugm.hpp"

#include "daemon/text/prefix_index.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace text {

namespace {

constexpr std::string_view kUnderscore = "\xE2\x96\x81";  // U+2581
constexpr double kUnknownPenalty = 10.0;
constexpr double kUnreached = -std::numeric_limits<double>::infinity();

class UgmTokenizer final : public Tokenizer {
public:
    UgmTokenizer(TokenizerParts parts, Charsmap charsmap, UgmOptions options)
        : Tokenizer{std::move(parts)},
          index_{vocabulary()},
          charsmap_{std::move(charsmap)},
          options_{options} {
        double lowest = 0;
        for (std::int32_t id = 0; id < vocab_size(); ++id)
            if (token_type(id) == TokenType::normal)
                lowest = std::min(lowest, double{vocabulary().score(id)});
        unknown_score_ = lowest - kUnknownPenalty;
    }

private:
    base::Result<std::string> canonical_fragment(std::string_view fragment) const override {
        std::string out;
        const std::string normal = normalize(fragment);
        for (std::string_view rest = normal; !rest.empty();) {
            const bool is_space = rest.starts_with(kUnderscore);
            out.push_back(is_space ? ' ' : rest.front());
            rest.remove_prefix(is_space ? kUnderscore.size() : 1);
        }
        return out;
    }

    /// The text through the charsmap, spaces as U+2581.
    [[nodiscard]] std::string normalize(std::string_view fragment) const {
        std::string out;
        bool in_word = false;  // the last byte was no space
        const auto append = [&](std::string_view text) {
            for (const char c : text) {
                if (c == ' ') {
                    if (!options_.remove_extra_whitespaces) out.append(kUnderscore);
                    in_word = false;
                    continue;
                }
                // Where extra ones are removed, a space is written once a word follows it.
                const bool prefix = out.empty() && add_space_prefix();
                if (!in_word && options_.remove_extra_whitespaces && (prefix || !out.empty()))
                    out.append(kUnderscore);
                in_word = true;
                out.push_back(c);
            }
        };
        if (add_space_prefix() && !options_.remove_extra_whitespaces) out.append(kUnderscore);
        while (!fragment.empty()) {
            const Charsmap::Match match = charsmap_.longest_at(fragment);
            if (match.bytes > 0) {
                append(match.replacement);
                fragment.remove_prefix(match.bytes);
                continue;
            }
            const Utf8Char c = first_character(fragment);
            // An ill-formed stretch is read byte by byte.
            const std::size_t bytes = c.is_valid ? c.bytes : 1;
            append(c.is_valid ? fragment.substr(0, bytes) : kReplacement);
            fragment.remove_prefix(bytes);
        }
        return out;
    }

    /// The best way to reach a place of the text.
    struct Best {
        double score = kUnreached;
        std::uint32_t begin = 0;  // where its last token begins
        std::int32_t id = kNoToken;
    };

    boost::system::error_code encode_fragment(std::string_view fragment,
                                              std::vector<std::int32_t>& ids) const override {
        const std::string text = normalize(fragment);
        if (text.size() > kMaxTextBytes) return Errc::text_too_long;  // replacements may be longer
        std::vector<Best> best(text.size() + 1);
        best[0].score = 0;
        for (std::size_t at = 0; at < text.size();) {
            const std::string_view rest = std::string_view{text}.substr(at);
            const std::size_t character = first_character(rest).bytes;
            const auto offer = [&](std::int32_t id, std::size_t bytes, double score) {
                Best& end = best[at + bytes];
                if (best[at].score + score > end.score)  // of equals, the longest last token
                    end = {best[at].score + score, static_cast<std::uint32_t>(at), id};
            };
            bool is_known = false;
            index_.for_each_prefix(rest, [&](std::int32_t id, std::size_t bytes) {
                is_known |= bytes == character;
                const bool is_user_defined = token_type(id) == TokenType::user_defined;
                offer(id, bytes, is_user_defined ? 0.0 : double{vocabulary().score(id)});
            });
            if (!is_known) offer(special().unk, character, unknown_score_);
            at += character;
        }
        append_best(best, ids);
        return {};
    }

    void append_best(const std::vector<Best>& best, std::vector<std::int32_t>& ids) const {
        const auto first = static_cast<std::ptrdiff_t>(ids.size());
        for (std::size_t at = best.size() - 1; at > 0; at = best[at].begin) {
            const std::int32_t id = best[at].id;
            const bool unknown_again = id == special().unk &&
                                       static_cast<std::ptrdiff_t>(ids.size()) > first &&
                                       ids.back() == id;
            if (id != kNoToken && !unknown_again) ids.push_back(id);
        }
        std::reverse(ids.begin() + first, ids.end());
    }

    PrefixIndex index_;
    Charsmap charsmap_;
    UgmOptions options_;
    double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> make_ugm(TokenizerParts parts, Charsmap charsmap, UgmOptions options) {
    return std::make_unique<UgmTokenizer>(std::move(parts), std::move(charsmap), options);
}

}  // namespace text
