#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/keys.hpp"

namespace config {

/// A value as it was written, whatever language it was written in.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

/// What a path in a value is resolved against.
struct Folders {
    std::filesystem::path relative_to;  ///< for relative paths
    std::filesystem::path executable;   ///< for a leading $ORIGIN
};

/// Puts a value where its key says.
/// @return what is wrong with it ("50000 is out of range" has found and expected told by the
///   caller), or nothing. When something is wrong, `config` is unchanged.
struct Rejection {
    std::string found;
    std::string expected;
};
[[nodiscard]] std::optional<Rejection> assign(const Key& key, const Value& value,
                                              const Folders& folders, Config& config);

/// Reads the text of a variable as the type that the key wants. Lists are separated by commas.
/// Text that is not of that type comes back as a string, for assign() to refuse.
[[nodiscard]] Value value_from_text(const Key& key, std::string_view text);

/// A value as messages show it: 12, 0.5, true, "text", ["a", "b"].
[[nodiscard]] std::string shown(const Value& value);

/// The effective value of a key, in TOML.
[[nodiscard]] std::string effective(const Key& key, const Config& config);

/// True when a request that comes to this host can only come from this machine.
[[nodiscard]] bool is_loopback(const Address& address);

/// True for well-formed UTF-8 without control characters.
[[nodiscard]] bool is_plain_text(std::string_view text);

/// True for a plugin id: letters, digits, '-', '_', '.', starting with a letter or digit.
[[nodiscard]] bool is_plugin_id(std::string_view text);

}  // namespace config
