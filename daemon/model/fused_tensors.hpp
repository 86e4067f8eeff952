#pragma once

#include <cstdint>
#include <optional>

#include "daemon/model/architecture.hpp"

namespace model {

// Some files store several parameters as one tensor: the rows of each behind those of the one before,
// inside each expert where there are experts (architectures.md 1.8). A table lists the fused tensor
// (Use::fused) ahead of its parts; the audit then finds each part in whichever of the two the file
// has, and loading cuts it out. Nothing behind that knows how the file stored it.

/// Where a part lies in its fused tensor. Rows are elements where the part is a vector.
struct FusedRows {
    Role fused = Role::count;
    std::int64_t first = 0;  ///< rows before it, in each expert
    std::int64_t total = 0;  ///< rows of the fused tensor, in each expert
};

/// Nothing when no fused tensor may hold `part`.
[[nodiscard]] std::optional<FusedRows> fused_rows(Role part, const Hparams& hparams);

}  // namespace model
