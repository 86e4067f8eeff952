#pragma once

#include "daemon/config/config.hpp"

namespace app {

/// Runs the daemon until a signal ends it: listen, bring the model up, serve, drain.
///
/// SIGTERM and SIGINT drain (a second one stops at once). SIGTERM and SIGINT must be blocked in
/// every thread before this is called.
/// @return the exit code
/// Throws base::StartError for a reason not to start.
int serve(const config::Config& config);

/// `assayd --check`: resolves and audits without loading a weight or listening; prints the effective
/// configuration and the plan. Throws base::StartError for what would stop the start.
void check(const config::Config& config);

}  // namespace app
