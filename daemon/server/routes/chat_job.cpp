#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/routes/jobs.hpp"
#include "daemon/server/session/choice_job.hpp"
#include "daemon/server/session/prepare.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

namespace server {
namespace {

/// POST /v1/chat/completions.
class ChatJob final : public ChoiceJob {
public:
    ChatJob(Core& core, std::shared_ptr<const Model> model, ChatRequest request,
            const HttpRequest& http, HttpExchange& exchange)
        : ChoiceJob{core,
                    model,
                    http,
                    exchange,
                    Setup{.api = metrics::Api::chat,
                          .n = request.n,
                          .is_stream = request.stream,
                          .include_usage = request.include_usage,
                          .report_tokens = request.logprobs,
                          .at_text_start = true},
                    request.params,
                    CompletionHead{random_id("chatcmpl-"),
                                   request.stream ? "chat.completion.chunk" : "chat.completion",
                                   static_cast<std::int64_t>(std::time(nullptr)), request.model,
                                   model->card.fingerprint}},
          request_{std::move(request)} {}

    void start() {
        ChatInputs inputs;
        inputs.messages = request_.messages;
        inputs.functions = request_.functions;
        inputs.reasoning_effort = request_.reasoning_effort;
        inputs.template_kwargs = request_.template_kwargs;
        run([inputs = std::move(inputs), &core = core_](const Model& model) -> Prompts {
            auto ids = encode_chat(model, core.metrics, inputs);
            if (!ids) {
                ApiError error = ids.error();
                error.param = "messages";
                return error;
            }
            return std::vector<Ids>{std::move(*ids)};
        });
    }

private:
    void adjust(base::Request& request) override {
        const std::int32_t configured = core_.options.limits.default_max_output_tokens;
        const std::int32_t limit =
            request_.params.max_tokens > 0 ? request_.params.max_tokens : configured;
        if (limit > 0) request.max_tokens = std::min(request.max_tokens, limit);
        request.min_tokens = std::min(request.min_tokens, request.max_tokens);
        if (request_.logprobs) request.num_logprobs = request_.top_logprobs;
        entries_.emplace_back();
    }

    void on_begin() override {
        if (!request_.stream) return;
        for (const auto& choice : choices_)
            exchange_.send({chat_role_chunk(head_, choice->index, request_.include_usage)});
    }

    void on_delta(Choice& choice, Delta&& delta) override {
        std::string entries;
        for (const ScoredToken& scored : delta.tokens) {
            if (!entries.empty()) entries += ',';
            append_logprob_entry(entries, scored, static_cast<std::size_t>(request_.top_logprobs),
                                 *model_->codec);
        }
        if (!request_.stream) {
            choice.text += delta.text;
            std::string& all = entries_[static_cast<std::size_t>(choice.index)];
            if (!all.empty() && !entries.empty()) all += ',';
            all += entries;
            return;
        }
        if (exchange_.merge(entries.empty() ? choice.last_chunk : 0, delta.text)) return;
        const ChatChoice chunk{.index = choice.index, .content = delta.text, .logprobs = entries};
        choice.last_chunk = exchange_.send(chat_chunk(head_, chunk, request_.include_usage));
    }

    void send_finish(Choice& choice) override {
        exchange_.send(
            {chat_finish_chunk(head_, choice.index, choice.finish_reason, request_.include_usage)});
    }

    std::string whole_answer(const Usage& usage) override {
        std::vector<ChatChoice> out;
        for (const auto& choice : choices_) {
            out.push_back({.index = choice->index,
                           .content = choice->text,
                           .logprobs = entries_[static_cast<std::size_t>(choice->index)],
                           .finish_reason = choice->finish_reason});
        }
        return chat_completion(head_, out, usage);
    }

    ChatRequest request_;
    std::vector<std::string> entries_;  // [num_choices] logprob entries, where not streamed
};

/// What is valid, and not possible yet.
std::optional<ApiError> find_unsupported(const ChatRequest& request) {
    if (!request.is_plain_text)
        return invalid_request("unsupported_value", "response_format.type",
                               "Structured output is not supported.");
    if (request.is_call_forced)
        return invalid_request("unsupported_value", "tool_choice",
                               "Forced tool calls are not supported.");
    return std::nullopt;
}

}  // namespace

std::shared_ptr<HttpJob> serve_chat_completions(Core& core, const HttpRequest& http,
                                                HttpExchange& exchange) {
    const auto refuse = [&](const ApiError& error) {
        core.count_rejection(error);
        exchange.refuse(error);
        return std::shared_ptr<HttpJob>{};
    };
    const auto model = core.model();
    const auto body = parse_object(http.body, core.options.strict_parameters);
    if (!body) return refuse(body.error());
    auto request = parse_chat_request(*body, core.parse_context(*model, true));
    if (!request) return refuse(request.error());
    if (!model->is_named(request->model)) return refuse(model_not_found(request->model));
    if (const auto error = find_unsupported(*request)) return refuse(*error);
    auto job = std::make_shared<ChatJob>(core, model, std::move(*request), http, exchange);
    job->start();
    return job;
}

}  // namespace server
