#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reply {

/// The arguments of a Python call, key=value separated by commas, as a JSON object. A value is a
/// string literal, or JSON, or True, False or None; anything else is taken as a text.
/// @return nothing when the text is no such list
[[nodiscard]] std::optional<std::string> json_of_python_arguments(std::string_view text);

}  // namespace reply
