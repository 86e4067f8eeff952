#include "daemon/server/session/response_turn.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/conversation.hpp"
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

}  // namespace

ResponseTurn::ResponseTurn(Core& core, std::shared_ptr<const Model> model, ResponseRequest request,
                           json::array context, EventSink& sink, TurnOrigin origin)
    : core_{core},
      model_{std::move(model)},
      request_{std::move(request)},
      context_{std::make_shared<const json::array>(std::move(context))},
      sink_{sink},
      origin_{std::move(origin)},
      events_{request_, random_id("resp_"), model_->card.fingerprint, now_seconds()} {}

ResponseTurn::~ResponseTurn() {
    if (!is_done_ && generation_) count(metrics::Outcome::cancelled);
}

void ResponseTurn::start() {
    if (!request_.generate && context_->empty() && request_.instructions.empty())
        return begin(EncodedPrompt{});  // a warm-up of nothing
    ChatInputs inputs;
    inputs.context = context_;
    inputs.instructions = request_.instructions;
    inputs.functions = request_.functions;
    inputs.reasoning_effort = request_.reasoning_effort;
    inputs.drop_oldest = request_.drop_oldest;
    inputs.max_tokens = request_.params.max_tokens;
    inputs.rules = request_.rules;
    inputs.form_param = "text.format";
    const std::size_t bytes = inputs.num_bytes();
    const bool is_taken = core_.helper.run(
        bytes,
        [self = weak_from_this(), model = model_, &core = core_, inputs = std::move(inputs)] {
            auto prompt =
                encode_chat(*model, core.metrics, inputs, [&self] { return self.expired(); });
            return [self, prompt = std::move(prompt)]() mutable {
                if (const auto turn = self.lock(); turn && !turn->is_done_)
                    turn->begin(std::move(prompt));
            };
        },
        [self = weak_from_this()](const std::string& why) {
            const auto turn = self.lock();
            if (!turn || turn->is_done_) return;
            ApiError error = internal_error();
            error.log = why;
            turn->refuse(error);
        });
    if (!is_taken) refuse(overloaded("Too many requests wait to be tokenized."));
}

void ResponseTurn::begin(Parsed<EncodedPrompt> prompt) {
    if (const auto refusal = core_.refusal()) return refuse(*refusal);
    if (!prompt) return refuse(prompt.error());
    if (prompt->ids.empty()) {
        on_accepted();
        return finish(ResponseEnd::completed, nullptr);
    }
    const std::int32_t limit =
        !request_.generate               ? 0
        : request_.params.max_tokens > 0 ? request_.params.max_tokens
                                         : default_max_tokens(
                                               *model_, prompt->ids.size(),
                                               core_.options.limits.default_max_output_tokens);
    base::Request request = make_request(*model_, request_.params, std::move(prompt->ids), limit);
    request.rules = std::move(prompt->rules);
    request.client = origin_.client;
    request.received = origin_.received;
    request.deadline = deadline_of(core_, origin_.received);
    if (request_.want_logprobs) request.num_logprobs = request_.top_logprobs;
    reader_.emplace(prompt->shape, std::make_shared<const reply::Tools>(request_.functions));
    generation_.emplace(core_, model_->codec,
                        TextStreamOptions{.stop = request_.params.stop,
                                          .include_stop = request_.params.include_stop,
                                          .render_special = !request_.params.skip_special,
                                          .at_text_start = true,
                                          .marks_of = prompt->shape.format},
                        request_.want_logprobs, *this);
    if (const auto started = generation_->start(std::move(request), origin_.flow); !started)
        refuse(from_errc(static_cast<base::Errc>(started.error().value())));
}

void ResponseTurn::on_accepted() {
    has_begun_ = true;
    send(events_.created());
    send(events_.in_progress());
}

void ResponseTurn::on_delta(Delta&& delta) {
    say(reader_->feed(std::move(delta)));
    if (has_said_enough_) generation_->stop();
}

void ResponseTurn::say(std::vector<ReplyPiece>& pieces) {
    for (ReplyPiece& piece : pieces) {
        if (has_said_enough_) return;
        say(piece);
    }
}

void ResponseTurn::say(ReplyPiece& piece) {
    using Kind = reply::Event::Kind;
    switch (piece.event.kind) {
        case Kind::content:
            return say_text(ItemKind::message, piece);
        case Kind::reasoning:
            return say_text(request_.want_summary ? ItemKind::summary : ItemKind::reasoning, piece);
        case Kind::call_begin:
            return open_item(ItemKind::call, std::move(piece.event.text));
        case Kind::arguments:
            return say_text(ItemKind::call, piece);
        case Kind::call_end:
            close_item(true);
            has_said_enough_ = !request_.rules.parallel_calls;
            return;
        case Kind::call_failed:
            core_.report(response_id() + " has a tool call that is none: " + piece.event.text);
            return close_item(false);
    }
}

void ResponseTurn::say_text(ItemKind kind, ReplyPiece& piece) {
    if (!events_.is_open(kind)) open_item(kind);
    if (sink_.merge(piece.tokens.empty() ? last_delta_ : 0, piece.event.text)) {
        events_.add_to_last_delta(piece.event.text);
        return;
    }
    std::string entries;
    for (const ScoredToken& scored : piece.tokens) {
        if (!entries.empty()) entries += ',';
        append_logprob_entry(entries, scored, static_cast<std::size_t>(request_.top_logprobs),
                             *model_->codec);
    }
    last_delta_ = send(events_.delta(piece.event.text, entries));
}

void ResponseTurn::open_item(ItemKind kind, std::string name) {
    if (events_.has_open_item()) close_item(true);
    constexpr std::string_view kPrefixes[] = {"msg_", "rs_", "rs_", "fc_"};
    send(events_.open({.kind = kind,
                       .id = random_id(kPrefixes[static_cast<std::size_t>(kind)]),
                       .call_id = kind == ItemKind::call ? random_id("call_") : std::string{},
                       .name = std::move(name)}));
}

void ResponseTurn::close_item(bool is_complete) {
    last_delta_ = 0;
    if (events_.has_open_item()) send(events_.close(is_complete));
}

void ResponseTurn::on_end(const GenerationEnd& end) {
    using Reason = GenerationEnd::Reason;
    if (end.reason == Reason::error) {
        if (!end.detail.empty()) core_.report(response_id() + " failed: " + end.detail);
        return fail(end.error);
    }
    if (!request_.generate) return finish(ResponseEnd::completed, nullptr);
    say(reader_->finish());
    const bool is_whole = end.reason != Reason::length;
    // An answer of no text is an answer; a limit inside of the reasoning leaves none.
    const bool has_answer = events_.has_answer();
    if (!has_answer && (is_whole || events_.num_items() == 0)) open_item(ItemKind::message);
    finish(is_whole ? ResponseEnd::completed : ResponseEnd::incomplete, nullptr);
}

void ResponseTurn::cancel() {
    if (is_done_) return;
    if (!has_begun_) {
        has_begun_ = true;
        send(events_.created());
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
    if (!error.log.empty()) core_.report(response_id() + " failed: " + error.log);
    count(metrics::Outcome::rejected);
    core_.count_rejection(error);
    sink_.refuse(error);
    sink_.done(*this, false);
}

void ResponseTurn::finish(ResponseEnd end, const ApiError* error) {
    is_done_ = true;
    end_ = end;
    if (error != nullptr) error_ = *error;
    Usage usage = generation_ ? generation_->usage() : Usage{};
    if (reader_) usage.reasoning_tokens = reader_->reasoning_tokens();
    if (end != ResponseEnd::failed) close_item(end == ResponseEnd::completed);
    const std::int64_t now = now_seconds();
    const bool is_whole = origin_.transport == metrics::Transport::http;
    if (is_whole || request_.store) final_object_ = events_.response_object(end, usage, error, now);
    if (!is_whole) send(events_.terminal(end, usage, error, now));
    using metrics::Outcome;
    constexpr Outcome kOutcomes[] = {Outcome::ok, Outcome::length, Outcome::cancelled,
                                     Outcome::error};
    count(kOutcomes[static_cast<std::size_t>(end)]);
    sink_.done(*this, end != ResponseEnd::failed);
}

void ResponseTurn::count(metrics::Outcome outcome) {
    core_.metrics.requests(metrics::Api::responses, origin_.transport, outcome).add();
}

std::shared_ptr<const PastResponse> ResponseTurn::past() const {
    auto past = std::make_shared<PastResponse>();
    past->id = response_id();
    past->owner = origin_.owner;
    past->items = *context_;
    past->num_given = past->items.size();
    for (json::value& item : events_.to_input(end_)) past->items.push_back(std::move(item));
    if (request_.store) past->object = final_object_;
    past->bytes = memory_of(past->items) + past->object.size();
    if (request_.store) core_.store.put(past, base::Clock::now());
    return past;
}

}  // namespace server
