#pragma once

#include "daemon/config/config.hpp"
#include "daemon/server/options.hpp"

namespace app {

/// What the configuration says of the listener and its clients, with the API keys read. Where lines go
/// (on_problem, on_access, on_message) is filled in too; see logging.hpp.
/// Throws base::ConfigError naming server.api_keys_file and the reason.
[[nodiscard]] server::Options server_options(const config::Config& config);

/// Raises the process's limit of open files as far as it goes; says when connections could reach it.
void raise_open_files_limit(const config::Server& server);

}  // namespace app
