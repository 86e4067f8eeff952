#pragma once

#include <string>
#include <string_view>

namespace text {

/// A quick look: true when no character of the text can change under NFC. False says nothing.
[[nodiscard]] bool is_nfc_for_sure(std::string_view text) noexcept;

/// Normalization Form C. Ill-formed parts are kept as they are.
/// Source: Unicode Standard Annex #15, and chapter 3.12 for Hangul.
[[nodiscard]] std::string to_nfc(std::string_view text);

/// Normalization Form D: every character as its base and its marks. Otherwise as to_nfc().
[[nodiscard]] std::string to_nfd(std::string_view text);

}  // namespace text
