#pragma once

#include <mutex>
#include <string>

#include "daemon/app/stack.hpp"
#include "daemon/assay/report.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/config/config.hpp"
#include "daemon/metrics/registry.hpp"

namespace app {

/// The proof that a daemon's readiness rests on: its report, while it runs and afterwards, in the log,
/// at /readyz and in the metrics.
class Proof {
public:
    Proof(metrics::Registry& registry, base::ServiceState& state) : registry_{registry}, state_{state} {}

    /// Proves the stack. Throws base::AssayError with the diagnosis when it does not pass. A daemon that is
    /// told to leave meanwhile stops between two checks and comes back without a proof. Thread: main.
    void run(const config::Config& config, Stack& stack);
    /// The report as it is now. Any thread.
    [[nodiscard]] std::string to_json() const;

private:
    void publish(const assay::Report& report, const Stack& stack);
    void set_states(const Stack& stack, int state);

    metrics::Registry& registry_;
    base::ServiceState& state_;
    mutable std::mutex mutex_;
    assay::Report report_;
};

}  // namespace app
