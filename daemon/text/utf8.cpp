#include "daemon/text/utf8.hpp"

namespace text {

namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
    return static_cast<unsigned char>(text[i]);
}

bool is_continuation(unsigned byte) {
    return (byte & 0xC0u) == 0x80u;
}

}  // namespace

void append_utf8(std::string& out, char32_t code_point) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | (code_point >> 6));
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | (code_point >> 12));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | (code_point >> 18));
        put(0x80 | ((code_point >> 12) & 0x3F));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

Utf8Char first_character(std::string_view text) noexcept {
    const unsigned lead = byte_at(text, 0);
    if (lead < 0x80) return {.code_point = lead, .bytes = 1, .is_valid = true};

    // Table 3-7: only the second byte's range depends on the lead.
    unsigned low = 0x80, high = 0xBF;
    std::size_t length = 0;
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    } else {
        return {.bytes = 1};
    }

    char32_t code_point = lead & (0xFFu >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if (i == text.size()) return {.bytes = static_cast<std::uint8_t>(i), .is_truncated = true};
        const unsigned byte = byte_at(text, i);
        if (byte < low || byte > high) return {.bytes = static_cast<std::uint8_t>(i)};
        code_point = (code_point << 6) | (byte & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return {.code_point = code_point, .bytes = static_cast<std::uint8_t>(length), .is_valid = true};
}

bool is_valid_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const Utf8Char c = first_character(text);
        if (!c.is_valid) return false;
        text.remove_prefix(c.bytes);
    }
    return true;
}

std::string repair_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const Utf8Char c = first_character(text.substr(i));
        if (c.is_valid) {
            out.append(text.substr(i, c.bytes));
            i += c.bytes;
            continue;
        }
        // Structure alone: the lead says how many continuation bytes follow.
        const unsigned lead = byte_at(text, i);
        const std::size_t length = (lead & 0xE0u) == 0xC0u   ? 2
                                   : (lead & 0xF0u) == 0xE0u ? 3
                                   : (lead & 0xF8u) == 0xF0u ? 4
                                                             : 1;
        bool is_complete = length > 1 && i + length <= text.size();
        char32_t code_point = lead & (0xFFu >> (length + 1));
        for (std::size_t k = 1; is_complete && k < length; ++k) {
            is_complete = is_continuation(byte_at(text, i + k));
            code_point = (code_point << 6) | (byte_at(text, i + k) & 0x3Fu);
        }
        const bool is_scalar =
            code_point <= 0x10FFFF && !(code_point >= 0xD800 && code_point <= 0xDFFF);
        if (is_complete && is_scalar) {
            append_utf8(out, code_point);  // overlong: the shortest form of the same code point
            i += length;
        } else {
            out.append(kReplacement);
            ++i;
        }
    }
    return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
    tail_.append(bytes);
    std::string out;
    std::string_view rest = tail_;
    while (!rest.empty()) {
        const Utf8Char c = first_character(rest);
        if (c.is_truncated) break;
        out.append(c.is_valid ? rest.substr(0, c.bytes) : kReplacement);
        rest.remove_prefix(c.bytes);
    }
    tail_ = std::string{rest};
    return out;
}

std::string Utf8Stream::flush() {
    if (tail_.empty()) return {};
    tail_.clear();
    return std::string{kReplacement};
}

}  // namespace text
