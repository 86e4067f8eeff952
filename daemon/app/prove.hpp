#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/app/stack.hpp"
#include "daemon/assay/calibration.hpp"
#include "daemon/assay/run.hpp"
#include "daemon/config/config.hpp"

namespace app {

/// What whoever waits for a proof wants to hear.
struct ProofObserver {
    std::function<void(const std::string&)> on_stage;        ///< "assay: layer 3, attention.run, plugin cpu-flash"
    std::function<void(const assay::Check&)> on_check;
    std::function<bool()> is_cancelled;
    /// A backend has not come back for assay.timeout_ms: the failed check that says so. Called from another
    /// thread, and does not return.
    std::function<void(const assay::Check&)> on_hang;
};

/// Proves what a stack is about to serve, or finds a proof of the very same in the cache. The stack's
/// runner must be idle. Throws base::ConfigError for a calibration or probes that cannot be read; what is
/// wrong with backends or model is in the report.
[[nodiscard]] assay::Report prove(const config::Config& config, Stack& stack, const ProofObserver& observer);

/// The stack as the assay sees it.
[[nodiscard]] assay::Candidate candidate_of(const Stack& stack);

/// Where the calibration of a model lies when the configuration names none: beside it.
[[nodiscard]] std::filesystem::path calibration_path(const config::Config& config);

}  // namespace app
