#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

/// Appends a code point as UTF-8.
void append_utf8(std::string& out, char32_t code_point);

/// The first character of a text, or the first ill-formed part of it.
struct Utf8Char {
    char32_t code_point = 0;  ///< only when is_valid
    std::uint8_t bytes = 0;   ///< 1 to 4; of an ill-formed part: its maximal subpart
    bool is_valid = false;
    bool is_truncated = false;  ///< ill-formed only because the text ends here
};

/// @param text  not empty
/// Source: The Unicode Standard, chapter 3, table 3-7 (well-formed sequences) and "U+FFFD
/// Substitution of Maximal Subparts".
[[nodiscard]] Utf8Char first_character(std::string_view text) noexcept;

[[nodiscard]] bool is_valid_utf8(std::string_view text) noexcept;

/// A text as well-formed UTF-8, as tokenizers of byte-level models read it: every byte that begins
/// no structurally complete sequence becomes U+FFFD of its own, overlong forms are shortened,
/// surrogates and code points beyond U+10FFFF become one U+FFFD a byte.
[[nodiscard]] std::string repair_utf8(std::string_view text);

/// Turns bytes that arrive in pieces into well-formed UTF-8, each character as soon as it is
/// complete. Ill-formed parts become U+FFFD, one a maximal subpart. The outputs, joined, do not
/// depend on how the bytes were cut.
class Utf8Stream {
public:
    /// @return the characters that these bytes complete; at most 3 bytes are held back
    [[nodiscard]] std::string push(std::string_view bytes);
    /// Ends the text: U+FFFD for an unfinished character, else "".
    [[nodiscard]] std::string flush();

private:
    std::string tail_;  // a proper prefix of a well-formed character
};

}  // namespace text
