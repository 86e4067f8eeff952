#include "daemon/app/server_options.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/app/logging.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/keys_file.hpp"
#include "daemon/config/mistakes.hpp"
#include "daemon/server/keys.hpp"

namespace app {
namespace {

constexpr rlim_t kOtherDescriptors = 128;  // plugins, logs, workers, the model's files

server::KeyDigest digest_from_hex(const std::string& hex) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    server::KeyDigest digest{};
    for (std::size_t i = 0; i < digest.size(); ++i)
        digest[i] = static_cast<unsigned char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
    return digest;
}

std::vector<server::ApiKey> read_api_keys(const std::filesystem::path& path) {
    std::vector<server::ApiKey> keys;
    try {
        for (const config::ApiKeyEntry& entry : config::load_api_keys(path)) {
            server::ApiKey& key = keys.emplace_back();
            key.label = entry.label;
            key.digest = entry.secret.empty() ? digest_from_hex(entry.sha256) : server::digest_of(entry.secret);
            key.max_in_flight = static_cast<std::size_t>(entry.max_in_flight);
            key.tokens_per_minute = entry.tokens_per_minute;
        }
    } catch (const config::Mistakes& e) {
        throw base::ConfigError{std::string{"server.api_keys_file: "} + e.what()};
    }
    struct stat s{};
    if (::stat(path.c_str(), &s) == 0 && (s.st_mode & (S_IRWXO)) != 0)
        log_warn("event=keys_file path=\"" + path.string() + "\" detail=\"everybody on this machine may read it; chmod o= it\"");
    return keys;
}

}  // namespace

server::Options server_options(const config::Config& config) {
    const config::Server& s = config.server;
    const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
    server::Options o;
    o.address = s.listen.host;
    o.port = s.listen.port;
    if (!config.tls.certificate.empty())
        o.tls = server::TlsFiles{config.tls.certificate.string(), config.tls.key.string(),
                                 config.tls.min_version == config::TlsVersion::v1_3};
    o.allowed_origins = s.allowed_origins;
    o.allowed_hosts = s.allowed_hosts;
    o.key_in_subprotocol = s.key_in_subprotocol;
    o.limits.max_connections = size(s.max_connections);
    o.limits.max_connections_per_address = size(s.max_connections_per_address);
    o.limits.max_head_bytes = size(s.max_head_bytes);
    o.limits.max_body_bytes = size(s.max_body_bytes);
    o.limits.max_frame_bytes = size(s.max_frame_bytes);
    o.limits.head_timeout = s.read_timeout;
    o.limits.body_timeout = s.read_timeout;
    o.limits.send_budget_bytes = size(s.send_budget_bytes);
    o.limits.send_high_bytes = std::min(o.limits.send_high_bytes, o.limits.send_budget_bytes / 4);
    o.limits.pause_timeout = s.pause_timeout;
    // One more than can render at once, so that what needs no template does not wait for those that do.
    o.helper.num_threads = static_cast<std::size_t>(config.chat_template.workers) + 1;
    o.limits.request_timeout = s.request_timeout;
    o.limits.max_store_bytes = size(s.store_bytes);
    o.limits.max_store_age = s.store_age;
    o.limits.default_max_output_tokens = config.sampling.max_tokens;
    o.sampling.temperature = static_cast<float>(config.sampling.temperature);
    o.sampling.top_p = static_cast<float>(config.sampling.top_p);
    o.sampling.top_k = config.sampling.top_k;
    o.sampling.min_p = static_cast<float>(config.sampling.min_p);
    if (!s.api_keys_file.empty()) o.api_keys = read_api_keys(s.api_keys_file);
    o.metrics = config.metrics.enabled;
    o.metrics_need_key = config.metrics.need_key;
    o.on_problem = [](std::string_view line) { log_warn(line); };
    if (!config.log.access_file.empty()) o.on_access = log_access;
    if (config.log.messages) o.on_message = log_message;
    return o;
}

void raise_open_files_limit(const config::Server& server) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_cur < limit.rlim_max) {
        const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    }
    const rlim_t wanted = static_cast<rlim_t>(server.max_connections) + kOtherDescriptors;
    if (limit.rlim_cur < wanted)
        log_warn("event=open_files limit=" + std::to_string(limit.rlim_cur) + " detail=\"server.max_connections (" +
                 std::to_string(server.max_connections) + ") needs " + std::to_string(wanted) +
                 ": raise LimitNOFILE in systemd or ulimit -n\"");
}

}  // namespace app
