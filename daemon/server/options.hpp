#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/helper.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace server {

using std::chrono::milliseconds;

/// Bounds on what a client may make the daemon hold or wait for.
struct Limits {
    std::size_t max_connections = 4096;              ///< further ones are answered with 503
    std::size_t max_connections_per_address = 1024;  ///< further ones are answered with 429
    std::size_t max_head_bytes = 16U << 10U;
    std::size_t max_body_bytes = 16U << 20U;   ///< an HTTP body
    std::size_t max_frame_bytes = 16U << 20U;  ///< one WebSocket message, all its fragments
    milliseconds head_timeout{30'000};        ///< from the first byte awaited to the whole head
    milliseconds body_timeout{60'000};
    milliseconds keep_alive_timeout{75'000};
    milliseconds ws_idle_timeout{60'000};  ///< no byte, pongs included; pings go out at half of it
    milliseconds close_timeout{5'000};     ///< wait for the peer's close frame
    milliseconds max_connection_age{3'600'000};
    milliseconds request_timeout{0};  ///< from a request's arrival to its end; 0: none

    // What waits for one connection's socket:
    std::size_t send_high_bytes = 64U << 10U;     ///< above: further text joins deltas that wait
    std::size_t send_budget_bytes = 256U << 10U;  ///< above: its streams pause, until half of it
    milliseconds write_stall_timeout{60'000};  ///< the peer's kernel took no byte for so long
    milliseconds pause_timeout{300'000};       ///< its streams were paused for so long
    milliseconds sse_keep_alive{15'000};       ///< an event stream is not silent for longer

    std::size_t max_lanes = 32;      ///< distinct stream_ids of one connection
    std::size_t max_in_flight = 16;  ///< responses running at once on one connection
    std::size_t max_waiting = 64;    ///< response.create messages behind them
    std::size_t max_waiting_bytes = 32U << 20U;
    std::size_t max_history_bytes = 64U << 20U;  ///< responses kept for continuation
    std::size_t max_store_bytes = 0;  ///< responses that outlive their connection; 0: none
    milliseconds max_store_age{3'600'000};
    std::size_t max_bad_messages = 100;          ///< in 10 s; then close 1008

    std::int32_t max_choices = 8;                ///< `n`
    std::size_t max_prompts = 64;                ///< prompts in one /v1/completions request
    std::int32_t default_max_output_tokens = 0;  ///< 0: to the end of the context
};

/// SHA-256 of a secret. Keys are held and compared as these, so that neither time nor a memory dump
/// tells a secret; keys are random, so that no salt is needed.
using KeyDigest = std::array<unsigned char, 32>;

/// Who may use the daemon, and how much of it.
struct ApiKey {
    std::string label;  ///< what logs and metrics show; several keys may share one
    KeyDigest digest{};
    std::size_t max_in_flight = 0;       ///< answers running or waiting at once; 0: no limit
    std::int64_t tokens_per_minute = 0;  ///< of prompts and answers; 0: no limit
};

/// The certificate that the listener shows. Both files are PEM.
struct TlsFiles {
    std::string certificate;  ///< the chain, the server's own first
    std::string key;          ///< not encrypted
    bool needs_1_3 = false;   ///< else 1.2 and newer
};

/// One line of the access log: an HTTP request, or a WebSocket connection that ended.
struct AccessRecord {
    std::string id;         ///< also sent to the client as x-request-id
    std::string peer;       ///< address
    std::string key_label;  ///< "" without authentication
    std::string method;
    std::string path;    ///< without the query
    int status = 0;      ///< HTTP status; 101 for a WebSocket connection
    int close_code = 0;  ///< WebSocket only; 1006 = no close frame
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t responses = 0;  ///< responses begun on a WebSocket connection
    milliseconds duration{0};
};

struct Options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 8080;                 ///< 0: any free one, see Server::port
    std::optional<TlsFiles> tls;               ///< none: plain HTTP and ws://
    std::vector<ApiKey> api_keys;              ///< none: no authentication
    std::vector<std::string> allowed_origins;  ///< "https://host[:port]" of browser pages, or "*"
    /// Names under which the daemon may be addressed when there are no keys (DNS rebinding);
    /// loopback names always may. "*": any.
    std::vector<std::string> allowed_hosts;
    bool key_in_subprotocol = false;  ///< honour openai-insecure-api-key.KEY of browsers
    bool metrics = true;              ///< serve /metrics
    bool metrics_need_key = false;
    bool websocket = true;
    bool strict_parameters = false;    ///< unknown fields and duplicate keys are refused
    bool reject_hosted_tools = false;  ///< tools that are not functions: refuse instead of drop
    Limits limits;
    HelperLimits helper;
    base::Sampling sampling;  ///< what a request gets for the fields it leaves out
    std::function<void(const AccessRecord&)> on_access;  ///< io thread
    /// What clients send, as they sent it: bodies and messages, under the id of the access record. Empty
    /// unless the operator asks for it. io thread.
    std::function<void(std::string_view id, std::string_view text)> on_message;
    /// Words for the operator's log, one line, request id first. io thread.
    std::function<void(std::string_view)> on_problem;
};

/// The model that is served, as clients see it.
struct ModelCard {
    std::string id;                    ///< served name
    std::vector<std::string> aliases;  ///< further names that requests may use
    std::int64_t created = 0;          ///< seconds since 1970
    std::string owned_by = "local";
    std::int32_t context_length = 0;  ///< tokens, prompt and output together
    std::string fingerprint;          ///< system_fingerprint: the backends in use
};

}  // namespace server
