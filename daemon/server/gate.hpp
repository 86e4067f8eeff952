#pragma once

#include "daemon/server/options.hpp"
#include "daemon/server/protocol/error.hpp"

#include <string_view>

namespace server {

/// The rule for pages of browsers: no Origin, the same host and port as Host, or one that the
/// configuration lists. "null" must be listed like any other.
/// @param origin  "" when there is no such header
[[nodiscard]] bool is_origin_allowed(const Options& options, std::string_view origin,
                                     std::string_view host);

/// Without keys the name in Host must be a loopback one or configured, so that a page cannot reach
/// the daemon under a name of its own (DNS rebinding).
[[nodiscard]] bool is_host_allowed(const Options& options, std::string_view host);

/// Finds whose key it is.
/// @param authorization  the header, "" for none
/// @param subprotocols   Sec-WebSocket-Protocol, where keys may be there
/// @return               one of options.api_keys, or null for a bad key. In constant time but for the
///                       length of what was given
[[nodiscard]] const ApiKey* find_key(const Options& options, std::string_view authorization,
                                     std::string_view subprotocols);

/// The subprotocol to answer with: the first offered one that carries no key. "" for none.
[[nodiscard]] std::string_view choose_subprotocol(std::string_view offered);

[[nodiscard]] ApiError origin_not_allowed();
[[nodiscard]] ApiError host_not_allowed();
[[nodiscard]] ApiError bad_key();

}  // namespace server
