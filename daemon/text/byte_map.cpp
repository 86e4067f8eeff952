#include "daemon/text/byte_map.hpp"

#include "daemon/text/utf8.hpp"

#include <array>
#include <cstdint>

namespace text {

namespace {

constexpr std::size_t kNumCodePoints = 0x144;  // one past the last that stands for a byte

struct ByteMap {
    std::array<std::string, 256> to_character;
    std::array<std::int16_t, kNumCodePoints> to_byte;

    ByteMap() {
        to_byte.fill(-1);
        char32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            const bool itself =
                (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
            const char32_t code_point = itself ? static_cast<char32_t>(byte) : next++;
            append_utf8(to_character[byte], code_point);
            to_byte[code_point] = static_cast<std::int16_t>(byte);
        }
    }
};

const ByteMap& byte_map() {
    static const ByteMap map;
    return map;
}

}  // namespace

std::string_view byte_to_character(unsigned char byte) noexcept {
    return byte_map().to_character[byte];
}

std::string unmap_bytes(std::string_view mapped) {
    const ByteMap& map = byte_map();
    std::string out;
    out.reserve(mapped.size());
    while (!mapped.empty()) {
        const Utf8Char c = first_character(mapped);
        if (c.is_valid && c.code_point < kNumCodePoints && map.to_byte[c.code_point] >= 0)
            out.push_back(static_cast<char>(map.to_byte[c.code_point]));
        else
            out.append(mapped.substr(0, c.bytes));
        mapped.remove_prefix(c.bytes);
    }
    return out;
}

}  // namespace text
