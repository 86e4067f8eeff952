#include "daemon/text/nfc.hpp"

#include "daemon/text/nfc_table.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace text {

namespace {

// Hangul syllables are arithmetic. Source: The Unicode Standard, chapter 3.12.
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kNumL = 19, kNumV = 21, kNumT = 28;
constexpr char32_t kNumS = kNumL * kNumV * kNumT;

struct NfcData {
    std::unordered_map<char32_t, const Decomposition*> decompositions;
    std::unordered_map<char32_t, std::uint8_t> combining_classes;
    std::unordered_map<std::uint64_t, char32_t> compositions;  // first * 2^32 + second
    std::vector<bool> may_change;  // by code point: may differ in NFC, itself or its neighbour

    NfcData() {
        const auto mark = [this](char32_t c) {
            if (may_change.size() <= c) may_change.resize(c + 1);
            may_change[c] = true;
        };
        for (const Decomposition& d : text::decompositions()) {
            decompositions.emplace(d.code_point, &d);
            if (d.composes) {
                compositions.emplace((std::uint64_t{d.first} << 32) | d.second, d.code_point);
                mark(d.second);
            } else {
                mark(d.code_point);
            }
        }
        for (const CombiningRange& range : combining_ranges())
            for (char32_t c = range.first; c <= range.last; ++c) {
                combining_classes.emplace(c, range.combining_class);
                mark(c);
            }
        for (char32_t c = kV; c < kV + kNumV; ++c) mark(c);
        for (char32_t c = kT + 1; c < kT + kNumT; ++c) mark(c);
    }

    [[nodiscard]] std::uint8_t combining_class(char32_t c) const {
        const auto found = combining_classes.find(c);
        return found == combining_classes.end() ? std::uint8_t{0} : found->second;
    }
};

const NfcData& data() {
    static const NfcData nfc;
    return nfc;
}

void decompose(char32_t c, std::vector<char32_t>& out) {
    if (c >= kS && c < kS + kNumS) {
        const char32_t index = c - kS;
        out.push_back(kL + index / (kNumV * kNumT));
        out.push_back(kV + index % (kNumV * kNumT) / kNumT);
        if (index % kNumT != 0) out.push_back(kT + index % kNumT);
        return;
    }
    const auto found = data().decompositions.find(c);
    if (found == data().decompositions.end()) {
        out.push_back(c);
        return;
    }
    decompose(found->second->first, out);
    if (found->second->second != 0) decompose(found->second->second, out);
}

/// Runs of combining marks in the order of their classes; equal classes keep their order.
void reorder(std::vector<char32_t>& code_points) {
    for (auto at = code_points.begin(); at != code_points.end();) {
        if (data().combining_class(*at) == 0) {
            ++at;
            continue;
        }
        const auto end = std::find_if(at, code_points.end(),
                                      [](char32_t c) { return data().combining_class(c) == 0; });
        std::stable_sort(at, end, [](char32_t a, char32_t b) {
            return data().combining_class(a) < data().combining_class(b);
        });
        at = end;
    }
}

/// The character that two others compose to, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
    if (first >= kL && first < kL + kNumL && second >= kV && second < kV + kNumV)
        return kS + ((first - kL) * kNumV + (second - kV)) * kNumT;
    if (first >= kS && first < kS + kNumS && (first - kS) % kNumT == 0 && second > kT &&
        second < kT + kNumT)
        return first + (second - kT);
    const auto found = data().compositions.find((std::uint64_t{first} << 32) | second);
    return found == data().compositions.end() ? 0 : found->second;
}

void compose(std::vector<char32_t>& code_points) {
    std::size_t kept = 0;  // code_points[0, kept) is the result so far
    std::size_t starter = 0;
    bool has_starter = false;
    int last_class = -1;  // of the character kept last, since the starter; -1: none
    for (std::size_t i = 0; i < code_points.size(); ++i) {
        const char32_t c = code_points[i];
        const int combining_class = data().combining_class(c);
        // Blocked when something between the starter and c has its class or a higher one.
        if (has_starter && last_class < combining_class) {
            if (const char32_t both = compose_pair(code_points[starter], c); both != 0) {
                code_points[starter] = both;
                continue;
            }
        }
        if (combining_class == 0) {
            starter = kept;
            has_starter = true;
            last_class = -1;
        } else {
            last_class = combining_class;
        }
        code_points[kept++] = c;
    }
    code_points.resize(kept);
}

/// Canonical decomposition, then composition where it is asked for.
std::string normalize(std::string_view text, bool composed) {
    std::string out;
    out.reserve(text.size());
    std::vector<char32_t> code_points;
    const auto flush = [&] {
        reorder(code_points);
        if (composed) compose(code_points);
        for (const char32_t c : code_points) append_utf8(out, c);
        code_points.clear();
    };
    while (!text.empty()) {
        const Utf8Char c = first_character(text);
        if (c.is_valid) {
            decompose(c.code_point, code_points);
        } else {
            flush();
            out.append(text.substr(0, c.bytes));
        }
        text.remove_prefix(c.bytes);
    }
    flush();
    return out;
}

}  // namespace

bool is_nfc_for_sure(std::string_view text) noexcept {
    const std::vector<bool>& may_change = data().may_change;
    for (std::size_t i = 0; i < text.size();) {
        if (static_cast<unsigned char>(text[i]) < 0xCC) {  // below U+0300: never changes
            ++i;
            continue;
        }
        const Utf8Char c = first_character(text.substr(i));
        if (c.is_valid && c.code_point < may_change.size() && may_change[c.code_point])
            return false;
        i += c.bytes;
    }
    return true;
}

std::string to_nfc(std::string_view text) {
    return normalize(text, true);
}

std::string to_nfd(std::string_view text) {
    return normalize(text, false);
}

}  // namespace text
