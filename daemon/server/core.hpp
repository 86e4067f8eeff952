#pragma once

#include "daemon/base/engine_link.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/metrics/feeds.hpp"
#include "daemon/server/dispatcher.hpp"
#include "daemon/server/helper.hpp"
#include "daemon/server/keys.hpp"
#include "daemon/server/options.hpp"
#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "daemon/server/session/response_store.hpp"
#include "daemon/server/text_codec.hpp"
#include "daemon/server/transport/tls_stream.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

namespace server {

/// What is served, as one immutable snapshot: requests hold the one they began with.
struct Model {
    ModelCard card;
    std::shared_ptr<const TextCodec> codec;  // held with generations that still decode

    /// Whether a request's `model` means this one.
    [[nodiscard]] bool is_named(std::string_view name) const;
};

/// What every session and job shares. Thread: io, but for set_model.
struct Core {
    Core(Options options, boost::asio::io_context& io, base::EngineLink& link,
         base::ServiceState& state, metrics::Registry& registry);

    void set_model(ModelCard card, std::shared_ptr<const TextCodec> codec);
    [[nodiscard]] std::shared_ptr<const Model> model() const;

    /// Why no request is accepted now, or nothing.
    [[nodiscard]] std::optional<ApiError> refusal() const;
    /// Counts a refusal under its reason.
    void count_rejection(const ApiError& error);
    /// The same, for a key that is none; tells the operator, at most once a second.
    void count_bad_key(std::string_view address);
    /// A peer that did not get through the TLS handshake, likewise.
    void count_bad_handshake(std::string_view address, std::string_view why);
    [[nodiscard]] ParseContext parse_context(const Model& model, bool is_http) const;
    /// For lines that anybody may cause: at most one a second, so that nobody fills the log.
    void report_throttled(std::string_view line);
    void report(std::string_view line) const {
        if (options.on_problem) options.on_problem(line);
    }

    const Options options;
    boost::asio::io_context& io;
    base::ServiceState& state;
    metrics::Registry& registry;
    metrics::Server metrics;
    KeyLedger keys;
    const std::unique_ptr<TlsContext> tls;  ///< null: plain
    Dispatcher dispatcher;
    Helper helper;
    ResponseStore store;
    std::uint64_t next_client = 1;  ///< names connections, for fairness between them

private:
    base::Clock::time_point next_report_{};
    std::size_t num_unreported_ = 0;
    mutable std::mutex mutex_;
    std::shared_ptr<const Model> model_;
};

}  // namespace server
