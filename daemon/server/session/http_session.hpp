#pragma once

#include "daemon/server/transport/transport.hpp"

namespace server {

struct Core;
class Sessions;

/// Serves one accepted connection until it ends: HTTP requests one after the other, or, after an
/// upgrade, a WebSocket (start_ws_session).
void start_http_session(Core& core, Sessions& sessions, Transport transport);

}  // namespace server
