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

bool is_same_secret(std::string_view given, std::string_view secret) {
    unsigned difference = given.size() == secret.size() && !secret.empty() ? 0U : 1U;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const char other = secret.empty() ? '\0' : secret[i % secret.size()];
        difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^
                                            static_cast<unsigned char>(other));
    }
    return difference == 0;
}

}  // namespace server
