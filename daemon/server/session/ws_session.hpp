#pragma once

#include "daemon/server/transport/transport.hpp"

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>

#include <string>

namespace server {

struct Core;
class Sessions;

/// An upgrade request that passed every check.
struct WsUpgrade {
    boost::beast::http::request<boost::beast::http::empty_body> request;
    std::string log_id;
    const ApiKey* key = nullptr;  ///< null without authentication
    std::string key_label;
    std::string address;
    std::string path;
    std::string subprotocol;
};

/// Answers the upgrade and serves the WebSocket until it ends.
void start_ws_session(Core& core, Sessions& sessions, Transport transport, WsUpgrade upgrade);

}  // namespace server
