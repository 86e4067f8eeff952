#include "daemon/server/ids.hpp"

#include "daemon/base/check.hpp"

#include <array>
#include <cstddef>
#include <sys/random.h>

namespace server {
namespace {

template <std::size_t n>
std::array<unsigned char, n> random_bytes() {
    std::array<unsigned char, n> bytes;
    CHECK(::getrandom(bytes.data(), n, 0) == static_cast<ssize_t>(n));  // whole up to 256 bytes
    return bytes;
}

}  // namespace

std::string random_id(std::string_view prefix) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out{prefix};
    for (const unsigned char byte : random_bytes<16>()) {
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
    return out;
}

unsigned long long random_bits() {
    unsigned long long out = 0;
    for (const unsigned char byte : random_bytes<8>()) out = out << 8U | byte;
    return out;
}

}  // namespace server
