#include "daemon/server/gate.hpp"

#include "daemon/server/keys.hpp"

#include <algorithm>
#include <cctype>
#include <openssl/crypto.h>

namespace server {
namespace {

constexpr std::string_view kKeyPrefix = "openai-insecure-api-key.";

bool is_same_ignoring_case(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return std::tolower(static_cast<unsigned char>(x)) ==
               std::tolower(static_cast<unsigned char>(y));
    });
}

std::string_view trim(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

/// Calls `use` for each item of a comma-separated list until it returns true.
template <class Use>
void for_each_item(std::string_view list, Use use) {
    while (!list.empty()) {
        const auto comma = list.find(',');
        const std::string_view item = trim(list.substr(0, comma));
        if (!item.empty() && use(item)) return;
        list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    }
}

std::string_view without_port(std::string_view host) {
    if (host.starts_with('[')) {
        const auto end = host.find(']');
        return end == std::string_view::npos ? host : host.substr(0, end + 1);
    }
    return host.substr(0, host.find(':'));
}

bool is_loopback(std::string_view name) {
    if (is_same_ignoring_case(name, "localhost") || name == "[::1]") return true;
    return name.starts_with("127.") &&
           name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool is_origin_allowed(const Options& options, std::string_view origin, std::string_view host) {
    if (origin.empty()) return true;
    for (const std::string& allowed : options.allowed_origins)
        if (allowed == "*" || is_same_ignoring_case(allowed, origin)) return true;
    const auto scheme_end = origin.find("://");
    return scheme_end != std::string_view::npos && !host.empty() &&
           is_same_ignoring_case(origin.substr(scheme_end + 3), host);
}

bool is_host_allowed(const Options& options, std::string_view host) {
    if (!options.api_keys.empty()) return true;
    const std::string_view name = without_port(host);
    if (name.empty() || is_loopback(name) || name == options.address) return true;
    return std::any_of(options.allowed_hosts.begin(), options.allowed_hosts.end(),
                       [&](const std::string& allowed) {
                           return allowed == "*" || is_same_ignoring_case(allowed, name) ||
                                  is_same_ignoring_case(allowed, host);
                       });
}

const ApiKey* find_key(const Options& options, std::string_view authorization,
                       std::string_view subprotocols) {
    constexpr std::string_view kBearer = "bearer ";
    std::string_view given;
    if (authorization.size() > kBearer.size() &&
        is_same_ignoring_case(authorization.substr(0, kBearer.size()), kBearer)) {
        given = trim(authorization.substr(kBearer.size()));
    } else if (options.key_in_subprotocol) {
        for_each_item(subprotocols, [&](std::string_view item) {
            if (!item.starts_with(kKeyPrefix)) return false;
            given = item.substr(kKeyPrefix.size());
            return true;
        });
    }
    const KeyDigest digest = digest_of(given);
    const ApiKey* found = nullptr;
    for (const ApiKey& key : options.api_keys)  // all of them, whichever it is
        if (::CRYPTO_memcmp(digest.data(), key.digest.data(), digest.size()) == 0) found = &key;
    return given.empty() ? nullptr : found;
}

std::string_view choose_subprotocol(std::string_view offered) {
    std::string_view chosen;
    for_each_item(offered, [&](std::string_view item) {
        if (item.starts_with(kKeyPrefix)) return false;
        chosen = item;
        return true;
    });
    return chosen;
}

ApiError origin_not_allowed() {
    return {403, "permission_error", "origin_not_allowed",
            "Pages of this origin may not use the daemon.", ""};
}

ApiError host_not_allowed() {
    return {403, "permission_error", "host_not_allowed",
            "The daemon is not served under this host name.", ""};
}

ApiError bad_key() {
    return {401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided.", ""};
}

}  // namespace server
