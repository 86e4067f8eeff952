#include "daemon/server/core.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace server {

bool Model::is_named(std::string_view name) const {
    return name == card.id ||
           std::find(card.aliases.begin(), card.aliases.end(), name) != card.aliases.end();
}

Core::Core(Options opts, boost::asio::io_context& context, base::EngineLink& link,
           base::ServiceState& service_state, metrics::Registry& metrics_registry)
    : options{std::move(opts)},
      io{context},
      state{service_state},
      registry{metrics_registry},
      metrics{metrics_registry},
      keys{options.api_keys},
      tls{options.tls ? std::make_unique<TlsContext>(*options.tls) : nullptr},
      dispatcher{link, metrics, &keys},
      helper{context, options.helper},
      store{options.limits.max_store_bytes, options.limits.max_store_age} {}

void Core::set_model(ModelCard card, std::shared_ptr<const TextCodec> codec) {
    registry.set_model(card.id);
    auto model = std::make_shared<const Model>(Model{std::move(card), std::move(codec)});
    const std::lock_guard lock{mutex_};
    model_ = std::move(model);
}

std::shared_ptr<const Model> Core::model() const {
    const std::lock_guard lock{mutex_};
    return model_;
}

std::optional<ApiError> Core::refusal() const {
    using Phase = base::ServiceState::Phase;
    switch (state.phase()) {
        case Phase::ready:
            break;
        case Phase::draining:
            return draining();
        case Phase::starting:
        case Phase::failed:
            return not_ready(state.reason());
    }
    if (model() == nullptr) return not_ready("no model yet");
    return std::nullopt;
}

void Core::count_rejection(const ApiError& error) {
    using metrics::Rejection;
    Rejection reason = Rejection::invalid;
    if (error.code == "context_length_exceeded")
        reason = Rejection::context;
    else if (error.code == "draining")
        reason = Rejection::draining;
    else if (error.code == "model_not_ready")
        reason = Rejection::not_verified;
    else if (error.code == "server_overloaded" || error.status == 429)
        reason = Rejection::queue_full;
    else if (error.status == 401 || error.status == 403)
        reason = Rejection::auth;
    metrics.rejected(reason).add();
}

void Core::report_throttled(std::string_view line) {
    const auto now = base::Clock::now();
    if (now < next_report_) {
        ++num_unreported_;
        return;
    }
    next_report_ = now + std::chrono::seconds{1};
    const std::size_t num_before = std::exchange(num_unreported_, 0);
    report(num_before == 0 ? std::string{line}
                           : std::string{line} + " (" + std::to_string(num_before) + " like it before)");
}

void Core::count_bad_key(std::string_view address) {
    metrics.rejected(metrics::Rejection::auth).add();
    report_throttled("refused " + std::string{address} + ": no valid API key");
}

void Core::count_bad_handshake(std::string_view address, std::string_view why) {
    report_throttled("no TLS handshake with " + std::string{address} + ": " + std::string{why});
}

ParseContext Core::parse_context(const Model& model, bool is_http) const {
    return {.vocab_size = model.codec->vocab_size(),
            .strict = options.strict_parameters,
            .reject_hosted_tools = options.reject_hosted_tools,
            .is_http = is_http,
            .has_store = store.is_on(),
            .max_choices = options.limits.max_choices,
            .max_prompts = options.limits.max_prompts,
            .sampling = options.sampling};
}

}  // namespace server
