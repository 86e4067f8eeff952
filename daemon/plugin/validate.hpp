#pragma once

#include "abi/plugin.h"

#include <string>
#include <string_view>
#include <vector>

namespace plugin {

/// Checks the static table that query(kind) returned: size, required functions, unique ids, sane
/// block geometry, complete and disjoint phase sets with their reason.
///
/// @param table  not null
/// @return       every problem, each a sentence; empty when the table can be used. An unknown kind
///               is a problem.
[[nodiscard]] std::vector<std::string> table_problems(std::string_view kind, const void* table);

}  // namespace plugin
