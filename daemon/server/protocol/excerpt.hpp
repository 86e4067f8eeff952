#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace server {

/// The beginning of a client's text, for a message about it: whole characters, at most `max_bytes`.
/// @param text  well-formed UTF-8
[[nodiscard]] inline std::string excerpt(std::string_view text, std::size_t max_bytes) {
    if (text.size() <= max_bytes) return std::string{text};
    while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
    return std::string{text.substr(0, max_bytes)};
}

}  // namespace server
