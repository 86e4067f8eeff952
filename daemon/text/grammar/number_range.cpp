#include "daemon/text/grammar/number_range.hpp"

#include <algorithm>
#include <string_view>

namespace grammar {

namespace {

constexpr std::int64_t kLargest = 999'999'999'999'999'999;

void add_branch(std::string& pattern, std::string_view branch) {
    if (!pattern.empty()) pattern += '|';
    pattern += branch;
}

std::string digit_range(char first, char last) {
    if (first == last) return std::string{first};
    return std::string{'['} + first + '-' + last + ']';
}

std::string any_digits(std::size_t n) {
    if (n == 0) return {};
    return n == 1 ? "[0-9]" : "[0-9]{" + std::to_string(n) + "}";
}

/// Numbers of equally many digits between low and high.
std::string same_length(const std::string& low, const std::string& high) {
    if (low == high) return low;
    std::size_t common = 0;
    while (low[common] == high[common]) ++common;
    const std::string prefix = low.substr(0, common);
    const std::string low_rest = low.substr(common), high_rest = high.substr(common);
    const std::size_t rest = low_rest.size() - 1;
    const bool has_low = low_rest.find_first_not_of('0', 1) != std::string::npos;
    const bool has_high = high_rest.find_first_not_of('9', 1) != std::string::npos;
    char first = low_rest[0], last = high_rest[0];
    std::string out;
    if (has_low) {
        add_branch(out, first + same_length(low_rest.substr(1), std::string(rest, '9')));
        ++first;
    }
    if (has_high) {
        --last;
    }
    if (first <= last) add_branch(out, digit_range(first, last) + any_digits(rest));
    if (has_high)
        add_branch(out, high_rest[0] + same_length(std::string(rest, '0'), high_rest.substr(1)));
    return prefix + "(?:" + out + ")";
}

/// Integers from low to high, neither negative.
std::string natural(std::int64_t low, std::int64_t high) {
    std::string out;
    while (low <= high) {
        const std::string first = std::to_string(low);
        std::string last(first.size(), '9');
        const std::int64_t longest = std::stoll(last);
        if (longest > high) last = std::to_string(high);
        add_branch(out, same_length(first, last));
        if (longest >= high) break;
        low = longest + 1;
    }
    return out;
}

std::int64_t clamp(std::int64_t value) {
    return std::clamp(value, -kLargest, kLargest);
}

const std::string kFraction = "(?:\\.[0-9]{1," + std::to_string(kMaxDigits) + "})";

/// Decimals from low to high, neither negative.
std::string positive_decimals(std::int64_t low, bool exclusive_low, std::int64_t high,
                              bool exclusive_high) {
    std::string out;
    if (low > high) return out;
    const std::string some = "\\.[0-9]{0," + std::to_string(kMaxDigits - 2) + "}[1-9][0-9]?";
    const std::string zeros = "(?:\\.0{1," + std::to_string(kMaxDigits) + "})?";
    if (low < high) {
        // The low end itself, what lies above it up to the next integer, and so on.
        add_branch(out, std::to_string(low) + (exclusive_low ? some : kFraction + "?"));
        if (low + 1 < high)
            add_branch(out, "(?:" + natural(low + 1, high - 1) + ")" + kFraction + "?");
    }
    const bool is_out = exclusive_high || (low == high && exclusive_low);
    if (!is_out) add_branch(out, std::to_string(high) + zeros);
    return out;
}

}  // namespace

std::string integer_pattern(std::optional<std::int64_t> min, std::optional<std::int64_t> max) {
    const std::int64_t low = clamp(min.value_or(-kLargest)), high = clamp(max.value_or(kLargest));
    if (min.value_or(0) > kLargest || max.value_or(0) < -kLargest) return {};
    std::string out;
    if (low < 0 && low <= high) {
        const std::string negative = natural(-std::min<std::int64_t>(high, -1), -low);
        add_branch(out, "-(?:" + negative + ")");
    }
    if (high >= 0 && low <= high) add_branch(out, natural(std::max<std::int64_t>(low, 0), high));
    return out;
}

std::string decimal_pattern(std::optional<std::int64_t> min, bool exclusive_min,
                            std::optional<std::int64_t> max, bool exclusive_max) {
    if (min.value_or(0) > kLargest || max.value_or(0) < -kLargest) return {};
    const std::int64_t low = clamp(min.value_or(-kLargest)), high = clamp(max.value_or(kLargest));
    std::string out;
    if (low > high) return out;
    if (low < 0) {
        const std::int64_t nearest = std::min<std::int64_t>(high, 0);
        const std::string negative =
            positive_decimals(-nearest, high <= 0 && exclusive_max, -low, exclusive_min);
        if (!negative.empty()) add_branch(out, "-(?:" + negative + ")");
    }
    if (high >= 0) {
        const std::int64_t nearest = std::max<std::int64_t>(low, 0);
        const std::string positive =
            positive_decimals(nearest, low >= 0 && exclusive_min, high, exclusive_max);
        if (!positive.empty()) add_branch(out, positive);
    }
    return out;
}

std::string number_pattern() {
    return "-?(?:0|[1-9][0-9]{0," + std::to_string(kMaxDigits - 1) + "})" + kFraction +
           "?(?:[eE][+-]?[0-9]{1,2})?";
}

}  // namespace grammar
