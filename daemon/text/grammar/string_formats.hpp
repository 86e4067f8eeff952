#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace grammar {

/// A `format` of strings that is enforced, as a pattern for the whole string. The texts are a
/// subset of those that the format's standard allows.
struct StringFormat {
    std::string_view name;
    std::string_view pattern;
};

[[nodiscard]] std::span<const StringFormat> string_formats();
/// The pattern of a format; none when it is not known.
[[nodiscard]] std::optional<std::string_view> find_format(std::string_view name);

}  // namespace grammar
