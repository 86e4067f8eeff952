#pragma once

#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>

#include <string>

namespace server {

struct Core;
class Sessions;

/// An upgrade request that passed every check.
struct WsUpgrade {
    boost::beast::http::request<boost::beast::http::empty_body> request;
    std::string leftover;  ///< bytes that came behind the request in the same segment
    std::string log_id;
    std::string key_label;
    std::string address;
    std::string path;
    std::string subprotocol;
};

/// Answers the upgrade and serves the WebSocket until it ends.
void start_ws_session(Core& core, Sessions& sessions, boost::beast::tcp_stream stream,
                      WsUpgrade upgrade);

}  // namespace server
