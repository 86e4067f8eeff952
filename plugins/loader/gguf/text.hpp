#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gguf {

/// Throws sdk::Error{ASSAY_CORRUPT} with the text "<file>: <what>".
[[noreturn]] void refuse(std::string_view file, const std::string& what);

/// Text from a file for a message, in double quotes: ASCII only, other bytes as \xNN, cut to
/// `max_bytes` of the source.
[[nodiscard]] std::string quoted(std::string_view text, std::size_t max_bytes = 80);

/// The file name without its folders, fit for a message.
[[nodiscard]] std::string short_name(std::string_view path);

/// Whether `text` is well-formed UTF-8: no overlong forms, no surrogates, at most U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

}  // namespace gguf
