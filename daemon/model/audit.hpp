#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/architecture.hpp"
#include "daemon/model/model_file.hpp"

namespace model {

/// Where each parameter of the model lies in the file: an index into ModelFile::tensors(), -1 = the
/// file does not have it. The parts of a fused tensor have its index, as it does itself.
struct TensorMap {
    using Roles = std::array<std::int64_t, kNumRoles>;
    Roles whole{};              ///< whole-model roles
    std::vector<Roles> layers;  ///< [num_layers + num_nextn_layers]
};

/// One defect, for the operator: the tensor or key, expected, found, what to do.
struct AuditFinding {
    std::string subject;  ///< tensor name or metadata key
    std::string message;
};

/// The two-way mapping between the tensors of a file and the parameters of its architecture. Reads
/// no weight.
struct AuditReport {
    const Architecture* architecture = nullptr;
    Hparams hparams;
    TensorMap map;
    std::vector<AuditFinding> defects;  ///< all of them at once
    std::vector<std::string> notes;     ///< "skipped: 27 tensors of the NextN block blk.6"
    std::size_t num_used = 0, num_skipped = 0;

    [[nodiscard]] bool passed() const { return defects.empty(); }
    /// Defects as lines, the first a summary that stands alone.
    [[nodiscard]] std::string to_text() const;
};

/// Audits every tensor: each parameter of the architecture is there with the right shape, each
/// tensor of the file is a parameter or matches a pattern of `allow_unused` (globs with * and ?).
/// Throws base::ModelError only where nothing can be audited: unknown architecture, bad
/// hyperparameters.
[[nodiscard]] AuditReport audit(const ModelFile& file, const std::vector<std::string>& allow_unused = {});

/// `*` any run, `?` any one character.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace model
