#pragma once

#include <optional>
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

/// One member of a table, whatever it is called.
struct TableMember {
    std::string name;
    std::optional<Value> value;  ///< none: a type that no setting has
    int line = 0, column = 0;
};

/// One [[name]] of an array of tables.
struct TableRow {
    int line = 0, column = 0;
    std::vector<TableMember> members;
};

/// Reads TOML text that holds [[name]] tables and nothing else; appends what is wrong to `mistakes`.
[[nodiscard]] std::vector<TableRow> read_toml_rows(std::string_view text, const std::string& source,
                                                   std::string_view name, std::vector<Mistake>& mistakes);

}  // namespace config
