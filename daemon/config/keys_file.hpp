#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace config {

/// One [[key]] of a file of API keys; conf/keys.toml explains the members.
struct ApiKeyEntry {
    std::string label;
    std::string secret;  ///< or empty, and then:
    std::string sha256;  ///< of the secret, 64 hexadecimal digits
    int max_in_flight = 0;
    std::int64_t tokens_per_minute = 0;
};

/// Reads and checks a file of API keys.
/// @throws Mistakes (exit 78) with every mistake; none of them shows a secret.
[[nodiscard]] std::vector<ApiKeyEntry> load_api_keys(const std::filesystem::path& file);

/// The same for text at hand, reported under `file_name`.
[[nodiscard]] std::vector<ApiKeyEntry> parse_api_keys(std::string_view text, const std::filesystem::path& file_name);

}  // namespace config
