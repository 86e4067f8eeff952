#pragma once

#include <boost/asio/ip/tcp.hpp>

namespace server {

struct Core;
class Sessions;

/// Serves one accepted connection until it ends: HTTP requests one after the other, or, after an
/// upgrade, a WebSocket (start_ws_session).
void start_http_session(Core& core, Sessions& sessions, boost::asio::ip::tcp::socket socket);

}  // namespace server
