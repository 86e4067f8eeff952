#include "daemon/text/lowercase.hpp"

#include "daemon/text/utf8.hpp"

#include <algorithm>

namespace text {

namespace {

char32_t lowercase(char32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    const auto runs = lowercase_runs();
    const auto run = std::lower_bound(runs.begin(), runs.end(), c,
                                      [](const LowercaseRun& r, char32_t x) { return r.last < x; });
    if (run == runs.end() || c < run->first || (c - run->first) % run->step != 0) return c;
    return static_cast<char32_t>(static_cast<std::int32_t>(c) + run->distance);
}

}  // namespace

std::string to_lowercase(std::string_view text) {
    constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Utf8Char c = first_character(text);
        if (!c.is_valid) {
            out.append(text.substr(0, c.bytes));
        } else if (c.code_point == kDottedI) {
            out.push_back('i');
            append_utf8(out, kDotAbove);
        } else {
            append_utf8(out, lowercase(c.code_point));
        }
        text.remove_prefix(c.bytes);
    }
    return out;
}

}  // namespace text
