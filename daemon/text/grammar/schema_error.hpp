#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace grammar {

/// A schema that cannot be enforced: where, and why. Thrown and caught inside of this folder only.
struct SchemaError : std::runtime_error {
    SchemaError(std::string_view at, std::string_view about, const std::string& why)
        : std::runtime_error{why}, pointer{at}, keyword{about} {}
    std::string pointer;  ///< JSON pointer of the schema, "" for the whole
    std::string keyword;  ///< "" when no single one is to blame
};

}  // namespace grammar
