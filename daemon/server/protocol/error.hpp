#pragma once

#include "daemon/base/error.hpp"

#include <boost/system/result.hpp>

#include <string>
#include <string_view>

namespace server {

/// A request that is refused, or failed, as the client is told about it.
struct ApiError {
    int status = 400;  ///< the HTTP status, also inside WebSocket error events
    std::string type = "invalid_request_error";
    std::string code;  ///< "" becomes null
    std::string message;
    std::string param;            ///< "" becomes null
    int retry_after_seconds = 0;  ///< 0: no such header
    std::string log;              ///< words for the operator's log; the client never sees them
};

/// What parsers of client messages return.
template <class T>
using Parsed = boost::system::result<T, ApiError>;

[[nodiscard]] ApiError invalid_json(std::string message);
[[nodiscard]] ApiError missing_parameter(std::string_view param);
/// @param expected  "an integer", "a string", …
[[nodiscard]] ApiError wrong_type(std::string_view param, std::string_view expected);
[[nodiscard]] ApiError invalid_value(std::string_view param, std::string message);
[[nodiscard]] ApiError invalid_request(std::string code, std::string_view param,
                                       std::string message);
[[nodiscard]] ApiError model_not_found(std::string_view model);
[[nodiscard]] ApiError context_length_exceeded(std::size_t prompt_tokens, int context_length,
                                               std::string_view param);
[[nodiscard]] ApiError previous_not_found(std::string_view id);
[[nodiscard]] ApiError not_ready(std::string_view reason);
[[nodiscard]] ApiError draining();
/// 500: the fault is ours; the words are in the log.
[[nodiscard]] ApiError internal_error();
[[nodiscard]] ApiError overloaded(std::string message);
/// 429: what one key may do is used up.
[[nodiscard]] ApiError rate_limited(std::string message, int retry_after_seconds);
/// 429: of one address.
[[nodiscard]] ApiError too_many_connections(std::string message);

/// Whether the fault is the client's, rather than that of a server which is busy, old or leaving.
[[nodiscard]] bool is_clients_mistake(const ApiError& error);

/// The one table from what can go wrong while serving to what a client sees. `detail` is told to the
/// client where it may act on it (a template's own message), and goes to the log otherwise.
[[nodiscard]] ApiError from_errc(base::Errc errc, std::string_view detail = {});

/// {"error":{"message","type","param","code"}}
[[nodiscard]] std::string error_body(const ApiError& error);

/// The `error` event of the WebSocket surface.
/// @param stream_id  "" for the default lane
[[nodiscard]] std::string error_event(const ApiError& error, std::string_view stream_id);

}  // namespace server
