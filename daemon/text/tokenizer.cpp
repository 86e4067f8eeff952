#include "daemon/text/tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace text {

namespace {

class ErrorCategory final : public boost::system::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "text"; }
    [[nodiscard]] std::string message(int code) const override {
        switch (static_cast<Errc>(code)) {
            case Errc::text_too_long:
                return "the text is longer than 64 MiB";
            case Errc::regex_limit:
                return "the text needs too much work to be cut into words";
        }
        return "unknown text error";
    }
};

}  // namespace

const boost::system::error_category& error_category() noexcept {
    static const ErrorCategory category;
    return category;
}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_{std::move(parts)} {}

bool Tokenizer::is_eog(std::int32_t id) const noexcept {
    return std::binary_search(parts_.eog_ids.begin(), parts_.eog_ids.end(), id);
}

base::Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                          EncodeOptions options) const {
    if (text.size() > kMaxTextBytes) return Errc::text_too_long;
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 2);
    const auto fragments = parts_.splitter.split(text, options.parse_special, options.plain);
    const bool has_bos = !fragments.empty() && fragments.front().token == special().bos;
    if (options.add_special && add_bos() && !has_bos) ids.push_back(special().bos);
    for (const Fragment& fragment : fragments) {
        if (fragment.token != kNoToken)
            ids.push_back(fragment.token);
        else if (const auto error = encode_fragment(fragment.text, ids))
            return error;
    }
    if (options.add_special && add_eos()) ids.push_back(special().eos);
    if (options.add_special && parts_.add_sep) ids.push_back(special().sep);
    return ids;
}

base::Result<std::string> Tokenizer::canonical(std::string_view text) const {
    std::string out;
    for (const Fragment& fragment : parts_.splitter.split(text, false)) {
        if (fragment.token != kNoToken) {
            out.append(token_piece(fragment.token));
            continue;
        }
        const auto part = canonical_fragment(fragment.text);
        if (!part) return part.error();
        out.append(*part);
    }
    return out;
}

std::vector<TextRange> Tokenizer::find_control(std::string_view text) const {
    std::vector<TextRange> ranges;
    for (const Fragment& fragment : parts_.splitter.split(text, true)) {
        if (token_type(fragment.token) != TokenType::control) continue;
        const auto begin = static_cast<std::size_t>(fragment.text.data() - text.data());
        ranges.push_back({begin, begin + fragment.text.size()});
    }
    return ranges;
}

}  // namespace text
