#pragma once

#include "daemon/server/session/http_exchange.hpp"

#include <memory>

namespace server {

struct Core;

/// Each parses the body, and either refuses the request or begins a job that answers it.
[[nodiscard]] std::shared_ptr<HttpJob> serve_responses(Core& core, const HttpRequest& request,
                                                       HttpExchange& exchange);
/// GET and DELETE of one response that is stored.
inline constexpr char kStored[] = "/v1/responses/";
[[nodiscard]] std::shared_ptr<HttpJob> serve_stored_response(Core& core,
                                                             const HttpRequest& request,
                                                             HttpExchange& exchange);
[[nodiscard]] std::shared_ptr<HttpJob> serve_completions(Core& core, const HttpRequest& request,
                                                         HttpExchange& exchange);
[[nodiscard]] std::shared_ptr<HttpJob> serve_chat_completions(Core& core,
                                                              const HttpRequest& request,
                                                              HttpExchange& exchange);
[[nodiscard]] std::shared_ptr<HttpJob> serve_tokenize(Core& core, const HttpRequest& request,
                                                      HttpExchange& exchange);
[[nodiscard]] std::shared_ptr<HttpJob> serve_detokenize(Core& core, const HttpRequest& request,
                                                        HttpExchange& exchange);

}  // namespace server
