#include "daemon/server/session/generation.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/session/flow.hpp"

#include <chrono>
#include <utility>

namespace server {
namespace {

double seconds(base::Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

Generation::Generation(Core& core, std::shared_ptr<const TextCodec> codec, TextStreamOptions text,
                       bool report_tokens, GenerationListener& listener)
    : core_{core},
      codec_{std::move(codec)},
      stream_{codec_->start(std::move(text))},
      listener_{listener},
      report_tokens_{report_tokens} {}

Generation::~Generation() {
    leave_flow();
    if (is_running_) core_.dispatcher.cancel(id_, true);
}

void Generation::leave_flow() {
    if (flow_ != nullptr) std::exchange(flow_, nullptr)->leave(id_);
}

base::Result<void> Generation::start(base::Request request, Flow* flow) {
    usage_.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    received_ = request.received;
    const auto id = core_.dispatcher.submit(request, *this);
    if (!id) return id.error();
    id_ = *id;
    is_running_ = true;
    flow_ = flow;
    if (flow_ != nullptr) flow_->join(id_);
    core_.metrics.prompt_length.observe(static_cast<double>(usage_.prompt_tokens));
    return {};
}

void Generation::on_event(base::TokenEvent& event) {
    using Kind = base::TokenEvent::Kind;
    switch (event.kind) {
        case Kind::accepted:
            listener_.on_accepted();
            return;
        case Kind::admitted:
            usage_.cached_tokens = event.cached_tokens;
            listener_.on_admitted();
            if (event.finish == base::FinishReason::none) return;
            break;
        case Kind::prompt_scored:
            if (event.finish == base::FinishReason::none) {
                listener_.on_prompt_scored(std::move(event.logprobs));
                return;
            }
            listener_.on_prompt_scored(std::move(event.logprobs));
            break;
        case Kind::token:
            on_token(event);
            return;
        case Kind::finished:
            break;
    }
    using Reason = GenerationEnd::Reason;
    switch (event.finish) {
        case base::FinishReason::none:
            return;
        case base::FinishReason::stop:
            return end({Reason::stop});
        case base::FinishReason::length:
            return end({Reason::length});
        case base::FinishReason::cancelled:
            return end({Reason::error, base::Errc::cancelled, std::move(event.detail)});
        case base::FinishReason::error:
            return end({Reason::error, event.error, std::move(event.detail)});
    }
}

void Generation::on_token(base::TokenEvent& event) {
    ++usage_.output_tokens;
    observe_token_time(event.at);
    if (event.finish == base::FinishReason::stop)  // the token that ends a text is not part of it
        return end({GenerationEnd::Reason::stop});

    Decoded decoded = stream_->push(event.token);
    ++num_held_;
    if (report_tokens_) {
        ScoredToken& scored = held_.emplace_back();
        scored.token = event.token;
        if (!event.logprobs.empty()) scored.logprobs = std::move(event.logprobs.front());
    }
    if (decoded.stopped)
        is_stopped_ = true;
    else if (event.finish == base::FinishReason::length)
        decoded.text += stream_->flush();
    if (!decoded.text.empty()) deliver(std::move(decoded.text));
    if (is_stopped_) {
        if (event.finish == base::FinishReason::none) core_.dispatcher.cancel(id_, false);
        return end({GenerationEnd::Reason::stop});
    }
    switch (event.finish) {
        case base::FinishReason::none:
        case base::FinishReason::stop:
            return;
        case base::FinishReason::length:
            return end({GenerationEnd::Reason::length});
        case base::FinishReason::cancelled:
            return end({GenerationEnd::Reason::error, base::Errc::cancelled});
        case base::FinishReason::error:
            return end({GenerationEnd::Reason::error, event.error, std::move(event.detail)});
    }
}

void Generation::deliver(std::string text) {
    listener_.on_delta(
        {std::move(text), std::exchange(num_held_, 0), std::exchange(held_, {})});
}

void Generation::observe_token_time(base::Clock::time_point at) {
    if (at == base::Clock::time_point{}) at = base::Clock::now();
    if (usage_.output_tokens == 1) {
        first_token_at_ = at;
        core_.metrics.time_to_first_token_seconds.observe(seconds(base::Clock::now() - received_));
    } else {
        core_.metrics.inter_token_latency_seconds.observe(seconds(at - last_token_at_));
    }
    last_token_at_ = at;
}

void Generation::end(GenerationEnd end) {
    is_running_ = false;
    leave_flow();
    std::string rest = is_stopped_ ? std::string{} : stream_->flush();
    core_.metrics.generation_length.observe(static_cast<double>(usage_.output_tokens));
    core_.metrics.request_seconds.observe(seconds(base::Clock::now() - received_));
    if (usage_.output_tokens > 1) {
        core_.metrics.time_per_output_token_seconds.observe(
            seconds(last_token_at_ - first_token_at_) /
            static_cast<double>(usage_.output_tokens - 1));
    }
    if (end.reason != GenerationEnd::Reason::error && (!rest.empty() || !held_.empty()))
        deliver(std::move(rest));
    listener_.on_end(end);
}

}  // namespace server
