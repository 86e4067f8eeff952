#pragma once

#include <filesystem>
#include <string>

namespace config {

/// The whole of a TOML file, as bytes.
/// @throws Mistakes with the reason when there is no such file, or it is a folder, unreadable, or larger
///         than 1 MiB
[[nodiscard]] std::string read_text_file(const std::filesystem::path& file);

}  // namespace config
