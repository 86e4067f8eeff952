#include "daemon/server/session/response_turn.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/ids.hpp"
#include "daemon/server/session/prepare.hpp"

#include <boost/json/value.hpp>

#include <ctime>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

std::int64_t now_seconds() {
    return static_cast<std::int64_t>(std::time(nullptr));
}

/// What is valid, and not possible yet.
std::optional<ApiError> find_unsupported(const ResponseRequest& request) {
    if (!request.is_plain_text)
        return invalid_request("unsupported_value", "text.format.type",
                               "Structured output is not supported.");
    if (request.is_call_forced)
        return invalid_request("unsupported_value", "tool_choice",
                               "Forced tool calls are not supported.");
    return std::nullopt;
}

}  // namespace

ResponseTurn::ResponseTurn(Core& core, std::shared_ptr<const Model> model, ResponseRequest request,
                           json::array context, EventSink& sink, TurnOrigin origin)
    : core_{core},
      model_{std::move(model)},
      request_{std::move(request)},
      context_(std::move(context)),  // braces would make a list of this list
      sink_{sink},
      origin_{std::move(origin)},
      events_{request_, random_id("resp_"), random_id("msg_"), model_->card.fingerprint,
              now_seconds()} {}

ResponseTurn::~ResponseTurn() {
    if (!is_done_ && generation_) count(metrics::Outcome::cancelled);
}

void ResponseTurn::start() {
    if (const auto unsupported = find_unsupported(request_)) return refuse(*unsupported);
    if (!request_.generate && context_.empty() && request_.instructions.empty())
        return begin(std::vector<std::int32_t>{});  // a warm-up of nothing
    ChatInputs inputs;
    inputs.context = context_;
    inputs.instructions = request_.instructions;
    inputs.functions = request_.functions;
    inputs.reasoning_effort = request_.reasoning_effort;
    inputs.drop_oldest = request_.drop_oldest;
    core_.helper.run(
        [self = weak_from_this(), model = model_, &core = core_, inputs = std::move(inputs)] {
            auto prompt = encode_chat(*model, core.metrics, inputs);
            return [self, prompt = std::move(prompt)]() mutable {
                if (const auto turn = self.lock(); turn && !turn->is_done_)
                    turn->begin(std::move(prompt));
            };
        },
        [self = weak_from_this()](const std::string& why) {
            const auto turn = self.lock();
            if (!turn || turn->is_done_) return;
            turn->core_.report(turn->response_id() + " failed: " + why);
            turn->refuse(internal_error());
        });
}

void ResponseTurn::begin(Parsed<std::vector<std::int32_t>> prompt) {
    if (const auto refusal = core_.refusal()) return refuse(*refusal);
    if (!prompt) return refuse(prompt.error());
    if (!prompt->empty()) {
        const std::int32_t limit =
            !request_.generate ? 0
            : request_.params.max_tokens > 0
                ? request_.params.max_tokens
                : default_max_tokens(*model_, prompt->size(),
                                     core_.options.limits.default_max_output_tokens);
        base::Request request = make_request(*model_, request_.params, std::move(*prompt), limit);
        request.client = origin_.client;
        request.received = origin_.received;
        if (request_.want_logprobs) request.num_logprobs = request_.top_logprobs;
        generation_.emplace(core_, model_->codec,
                            TextStreamOptions{.stop = request_.params.stop,
                                              .include_stop = request_.params.include_stop,
                                              .render_special = !request_.params.skip_special,
                                              .at_text_start = true},
                            request_.want_logprobs, *this);
        if (const auto started = generation_->start(std::move(request), origin_.flow); !started)
            return refuse(from_errc(static_cast<base::Errc>(started.error().value())));
    }
    if (generation_) return;
    on_accepted();
    finish(ResponseEnd::completed, nullptr);
}

void ResponseTurn::on_accepted() {
    has_begun_ = true;
    send("response.created", events_.created());
    send("response.in_progress", events_.in_progress());
}

void ResponseTurn::open_item() {
    if (has_item_) return;
    has_item_ = true;
    send("response.output_item.added", events_.item_added());
    send("response.content_part.added", events_.part_added());
}

void ResponseTurn::on_delta(Delta&& delta) {
    open_item();
    if (sink_.merge(delta.tokens.empty() ? last_delta_ : 0, delta.text)) {
        events_.add_to_last_delta(delta.text);
        return;
    }
    std::string entries;
    for (const ScoredToken& scored : delta.tokens) {
        if (!entries.empty()) entries += ',';
        append_logprob_entry(entries, scored, static_cast<std::size_t>(request_.top_logprobs),
                             *model_->codec);
    }
    last_delta_ = sink_.send("response.output_text.delta", events_.delta(delta.text, entries));
}

void ResponseTurn::on_end(const GenerationEnd& end) {
    using Reason = GenerationEnd::Reason;
    if (end.reason == Reason::error) {
        if (!end.detail.empty()) core_.report(response_id() + " failed: " + end.detail);
        return fail(end.error);
    }
    if (!request_.generate) return finish(ResponseEnd::completed, nullptr);
    open_item();
    finish(end.reason == Reason::length ? ResponseEnd::incomplete : ResponseEnd::completed,
           nullptr);
}

void ResponseTurn::cancel() {
    if (is_done_) return;
    if (!has_begun_) {
        has_begun_ = true;
        send("response.created", events_.created());
    }
    finish(ResponseEnd::cancelled, nullptr);
}

void ResponseTurn::fail(base::Errc errc) {
    if (is_done_) return;
    ApiError error = from_errc(errc);
    if (!has_begun_) return refuse(error);
    if (errc == base::Errc::draining) error.code = "server_error";
    finish(ResponseEnd::failed, &error);
}

void ResponseTurn::refuse(const ApiError& error) {
    is_done_ = true;
    generation_.reset();
    count(metrics::Outcome::rejected);
    core_.count_rejection(error);
    sink_.refuse(error);
    sink_.done(*this, false);
}

void ResponseTurn::finish(ResponseEnd end, const ApiError* error) {
    is_done_ = true;
    if (error != nullptr) error_ = *error;
    const Usage usage = generation_ ? generation_->usage() : Usage{};
    if (has_item_ && end != ResponseEnd::failed) {
        send("response.output_text.done", events_.text_done());
        send("response.content_part.done", events_.part_done());
        send("response.output_item.done", events_.item_done(end == ResponseEnd::completed));
    }
    const std::int64_t now = now_seconds();
    final_object_ = events_.response_object(end, usage, error, now);
    constexpr std::string_view kTypes[] = {"response.completed", "response.incomplete",
                                           "response.incomplete", "response.failed"};
    send(kTypes[static_cast<std::size_t>(end)], events_.terminal(end, usage, error, now));
    using metrics::Outcome;
    constexpr Outcome kOutcomes[] = {Outcome::ok, Outcome::length, Outcome::cancelled,
                                     Outcome::error};
    count(kOutcomes[static_cast<std::size_t>(end)]);
    sink_.done(*this, end != ResponseEnd::failed);
}

void ResponseTurn::count(metrics::Outcome outcome) {
    core_.metrics.requests(metrics::Api::responses, origin_.transport, outcome).add();
}

json::array ResponseTurn::history() const {
    json::array out = context_;
    if (!has_item_) return out;
    json::object part{{"type", "output_text"}, {"text", events_.text()}};
    out.push_back(
        {{"type", "message"}, {"role", "assistant"}, {"content", json::array{std::move(part)}}});
    return out;
}

}  // namespace server
