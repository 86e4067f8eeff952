#include "text.hpp"

#include "cxx/plugin.hpp"

#include <algorithm>
#include <cstdint>

namespace gguf {
namespace {

void append_escaped(std::string& out, unsigned char byte) {
    constexpr char kHex[] = "0123456789abcdef";
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
}

bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

void refuse(std::string_view file, const std::string& what) {
    throw sdk::Error{ASSAY_CORRUPT, std::string{file} + ": " + what};
}

std::string quoted(std::string_view text, std::size_t max_bytes) {
    std::string out = "\"";
    for (const char c : text.substr(0, max_bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_control(c) || byte >= 0x80) {
            append_escaped(out, byte);
        } else {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
        }
    }
    return out + (text.size() > max_bytes ? "...\"" : "\"");
}

std::string short_name(std::string_view path) {
    constexpr std::size_t kMaxBytes = 128;  // leaves most of an error text for the reason
    if (const auto slash = path.rfind('/');
        slash != std::string_view::npos && slash + 1 < path.size())
        path.remove_prefix(slash + 1);
    if (path.size() <= kMaxBytes && is_utf8(path) &&
        std::none_of(path.begin(), path.end(), is_control))
        return std::string{path};
    return quoted(path, kMaxBytes);
}

bool is_utf8(std::string_view text) noexcept {
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    const auto* end = p + text.size();
    while (p < end) {
        if (*p < 0x80) {
            ++p;
            continue;
        }
        const int extra = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
        if (*p < 0xc2 || *p > 0xf4 || end - p <= extra) return false;
        std::uint32_t point = *p & (0x3fu >> extra);
        for (int i = 1; i <= extra; ++i) {
            if ((p[i] & 0xc0) != 0x80) return false;
            point = point << 6 | (p[i] & 0x3fu);
        }
        if ((extra == 2 && point < 0x800) || (extra == 3 && point < 0x10000)) return false;
        if ((point >= 0xd800 && point < 0xe000) || point > 0x10ffff) return false;
        p += extra + 1;
    }
    return true;
}

}  // namespace gguf
