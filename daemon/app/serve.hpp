#pragma once

#include "daemon/config/config.hpp"

namespace app {

/// Runs the daemon until a signal ends it: listen, bring the model up, serve, drain.
///
/// SIGTERM, SIGINT and SIGQUIT drain, or end a start that is not done; a second one ends the process at
/// once. A backend that fails ends it too, once everybody was told. Signals::block() comes before this.
/// @return the exit code: 0, 70 after a failed backend, 75 when answers were cut
/// Throws base::StartError for a reason not to start.
int serve(const config::Config& config);

/// `assayd --check`: resolves and audits without loading a weight or listening; prints the effective
/// configuration and the plan. Looks at every file that the configuration names. Throws base::StartError
/// for what would stop the start.
void check(const config::Config& config);

}  // namespace app
