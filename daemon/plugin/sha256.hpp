#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plugin {

/// The hash by which images, plans and cached proofs are identified.
/// Source: NIST FIPS 180-4, "Secure Hash Standard", 2015, sections 5.1.1, 5.3.3 and 6.2.
class Sha256 {
public:
    void update(std::span<const std::byte> bytes) noexcept;
    void update(std::string_view text) noexcept { update(std::as_bytes(std::span{text})); }

    /// The digest of everything given so far; the object is then used up.
    [[nodiscard]] std::array<std::uint8_t, 32> digest() noexcept;
    /// The same as 64 lower-case hexadecimal digits.
    [[nodiscard]] std::string hex();

private:
    void block(const std::uint8_t* data) noexcept;

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::uint8_t, 64> buffer_{};
    std::uint64_t num_bytes_ = 0;
};

[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);
[[nodiscard]] std::string sha256_hex(std::string_view text);

}  // namespace plugin
