#include "daemon/text/pretokenizer.hpp"

#include "daemon/text/tokenizer.hpp"

#include <algorithm>

namespace text {

const PretokenizerRow* find_pretokenizer(std::string_view pre) {
    const auto table = pretokenizer_table();
    const auto row = std::find_if(table.begin(), table.end(),
                                  [pre](const PretokenizerRow& r) { return r.pre == pre; });
    return row == table.end() ? nullptr : &*row;
}

std::string pretokenizer_names() {
    std::vector<std::string_view> names;
    for (const PretokenizerRow& row : pretokenizer_table()) names.push_back(row.pre);
    std::sort(names.begin(), names.end());
    std::string out;
    for (const std::string_view name : names) out.append(out.empty() ? "" : ", ").append(name);
    return out;
}

Pretokenizer::Pretokenizer(const PretokenizerRow& row) {
    for (const std::string_view pattern : row.patterns) {
        patterns_.emplace_back(pattern);
        // A look-ahead over a whole run of digits, at each of its digits: quadratic in the run.
        if (!long_digit_run_ && pattern.find("(?=") != std::string_view::npos)
            long_digit_run_.emplace(R"((?<!\p{N})\p{N}{2049})");
    }
}

boost::system::error_code Pretokenizer::split(std::string_view text,
                                              std::vector<std::string_view>& pieces) const {
    pieces.clear();
    if (text.empty()) return {};
    if (long_digit_run_) {
        const auto found = long_digit_run_->matches(text);
        if (!found) return found.error();
        if (*found) return Errc::regex_limit;
    }
    pieces.push_back(text);
    std::vector<std::string_view> finer;
    for (const Regex& pattern : patterns_) {
        finer.clear();
        finer.reserve(pieces.size() + text.size() / 4);
        for (const std::string_view piece : pieces)
            if (const auto error = pattern.split(piece, finer)) return error;
        pieces.swap(finer);
    }
    return {};
}

}  // namespace text
