#pragma once

#include "daemon/server/session/http_exchange.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace server {

struct Core;

/// Which resource a path names.
enum class Route : std::uint8_t {
    none,
    healthz,
    readyz,
    metrics,
    models,     // the list, and one model below it
    responses,  // POST, and GET for the WebSocket upgrade
    stored_response,  // one response, below that
    completions,
    chat_completions,
    tokenize,
    detokenize,
};

/// @param path  without the query; one trailing slash counts as none
[[nodiscard]] Route find_route(std::string_view path);

/// Whether a resource is open to everyone: liveness, readiness.
[[nodiscard]] bool needs_key(Route route, bool metrics_need_key);

/// Answers a request, at once or by the job returned. Path, key and origin are checked before.
[[nodiscard]] std::shared_ptr<HttpJob> serve_request(Core& core, Route route, HttpRequest request,
                                                     HttpExchange& exchange);

/// The methods a resource has, for `Allow`.
[[nodiscard]] std::string_view allowed_methods(Route route);

}  // namespace server
