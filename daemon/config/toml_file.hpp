#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/assign.hpp"
#include "daemon/config/mistakes.hpp"

namespace config {

/// Reads TOML text into `config` and its origins; appends what is wrong to `mistakes`.
///
/// A syntax error ends the reading at that place. The text is hostile: any bytes are either read or
/// reported.
void read_toml(std::string_view text, const std::string& source, const Folders& folders,
               Config& config, std::vector<Mistake>& mistakes);

}  // namespace config
