#pragma once

#include "plan.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace synth {

struct WriteOptions {
    std::uint64_t seed = 1;
    bool sparse = false;        ///< real header, holes for data
    std::uint32_t threads = 0;  ///< 0 = one a processor
    /// Bytes written and bytes that will have been; from any thread, one at a time.
    std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
};

/// Writes the model with its vocabulary. The bytes depend on the plan and the seed alone. Nothing
/// appears at `path` unless all of it did.
/// @throws sdk::Error{ASSAY_IO}: the file exists, disk full; std::invalid_argument: the vocabulary
/// is
///         too small or too large to be made
void write_model(const ModelPlan& plan, const std::string& path, const WriteOptions& options);

}  // namespace synth
