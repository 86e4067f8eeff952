#include "daemon/config/mistakes.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace config {
namespace {

/// The first line tells everything when there is one mistake, and how many there are otherwise.
std::string joined(const std::vector<Mistake>& list) {
    std::string text;
    for (const Mistake& mistake : list) {
        if (!text.empty()) text += '\n';
        text += mistake.text();
        if (&mistake == list.data() && list.size() > 1) {
            text += " (the first of " + std::to_string(list.size()) + " mistakes)";
        }
    }
    return text;
}

/// Optimal string alignment distance: Levenshtein plus swaps of neighbours. O(|a| |b|).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
    std::iota(previous.begin(), previous.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        before.swap(previous);
        previous.swap(row);
    }
    return previous[b.size()];
}

}  // namespace

std::string Mistake::text() const {
    std::string text = source;
    if (line > 0) text += ':' + std::to_string(line) + ':' + std::to_string(column);
    if (!key.empty()) text += ": " + key;
    return text + ": found " + found + ", expected " + expected;
}

Mistakes::Mistakes(std::vector<Mistake> list)
    : base::ConfigError{joined(list)}, list_{std::move(list)} {}

std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > 200) return {};
    std::string_view best;
    std::size_t least = std::max<std::size_t>(2, word.size() / 4) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < least) {
            least = distance;
            best = candidate;
        }
    }
    return best;
}

std::string toml_quoted(std::string_view text, std::size_t max_bytes) {
    const bool is_long = text.size() > max_bytes;
    std::string_view shown = text;
    if (is_long) {
        std::size_t end = max_bytes;  // not in the middle of a UTF-8 sequence
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
        shown = text.substr(0, end);
    }
    std::string out = "\"";
    for (const char c : shown) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20 || byte == 0x7f) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", byte);
            out += escape;
        } else {
            out += c;
        }
    }
    out += '"';
    if (is_long) out += "... (" + std::to_string(text.size()) + " bytes)";
    return out;
}

}  // namespace config
