#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/chat_text.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/routes/jobs.hpp"
#include "daemon/server/session/choice_job.hpp"
#include "daemon/server/session/prepare.hpp"
#include "daemon/server/session/reply_reader.hpp"

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
        inputs.rules = request_.rules;
        inputs.form_param = "response_format";
        const std::size_t bytes = inputs.num_bytes();
        run(bytes, [inputs = std::move(inputs), &core = core_](
                       const Model& model, const IsCancelled& is_cancelled) -> Prompts {
            auto prompt = encode_chat(model, core.metrics, inputs, is_cancelled);
            if (prompt) return std::vector<EncodedPrompt>{std::move(*prompt)};
            ApiError error = prompt.error();
            if (error.param == "input") error.param = "messages";
            return error;
        });
    }

private:
    using Kind = ChatDelta::Kind;

    /// What one choice has said.
    struct Reply {
        Reply(const ReplyShape& shape, std::shared_ptr<const reply::Tools> tools)
            : reader{shape, std::move(tools)} {}

        ReplyReader reader;
        std::string content, reasoning, entries;  // where the answer is not streamed
        std::vector<ChatCall> calls;              // begun, also where it is streamed
        bool has_called = false;                  // one of them is whole
        bool has_said_enough = false;
        Outbox::Serial last_chunk = 0;  // that may still take text
        Kind last_kind = Kind::content;
    };

    Reply& reply_of(const Choice& choice) {
        return *replies_[static_cast<std::size_t>(choice.index)];
    }

    void on_choices() override {
        const auto tools = std::make_shared<const reply::Tools>(request_.functions);
        for (const auto& choice : choices_)
            replies_.push_back(std::make_unique<Reply>(choice->prompt.shape, tools));
    }

    void adjust(base::Request& request) const override {
        const std::int32_t configured = core_.options.limits.default_max_output_tokens;
        const std::int32_t limit =
            request_.params.max_tokens > 0 ? request_.params.max_tokens : configured;
        if (limit > 0) request.max_tokens = std::min(request.max_tokens, limit);
        request.min_tokens = std::min(request.min_tokens, request.max_tokens);
        if (request_.logprobs) request.num_logprobs = request_.top_logprobs;
    }

    void on_begin() override {
        if (!request_.stream) return;
        for (const auto& choice : choices_)
            exchange_.send({chat_role_chunk(head_, choice->index, request_.include_usage)});
    }

    void on_delta(Choice& choice, Delta&& delta) override {
        Reply& reply = reply_of(choice);
        say(choice, reply, reply.reader.feed(std::move(delta)));
        if (reply.has_said_enough) choice.stop();
    }

    void on_finish(Choice& choice) override {
        Reply& reply = reply_of(choice);
        say(choice, reply, reply.reader.finish());
        if (reply.has_called && choice.finish_reason == "stop") choice.finish_reason = "tool_calls";
    }

    void say(const Choice& choice, Reply& reply, std::vector<ReplyPiece>& pieces) {
        for (ReplyPiece& piece : pieces) {
            if (reply.has_said_enough) return;
            say(choice, reply, piece);
        }
    }

    void say(const Choice& choice, Reply& reply, ReplyPiece& piece) {
        std::string& text = piece.event.text;
        switch (piece.event.kind) {
            case reply::Event::Kind::content: {
                std::string entries;
                for (const ScoredToken& scored : piece.tokens) {
                    if (!entries.empty()) entries += ',';
                    append_logprob_entry(entries, scored,
                                         static_cast<std::size_t>(request_.top_logprobs),
                                         *model_->codec);
                }
                if (request_.stream)
                    return send(choice, reply, {.text = text, .logprobs = entries});
                reply.content += text;
                if (!reply.entries.empty() && !entries.empty()) reply.entries += ',';
                reply.entries += entries;
                return;
            }
            case reply::Event::Kind::reasoning:
                if (request_.stream)
                    return send(choice, reply, {.kind = Kind::reasoning, .text = text});
                reply.reasoning += text;
                return;
            case reply::Event::Kind::call_begin: {
                const ChatCall& call =
                    reply.calls.emplace_back(ChatCall{random_id("call_"), std::move(text), {}});
                if (request_.stream)
                    send(choice, reply,
                         {.kind = Kind::call,
                          .call = reply.calls.size() - 1,
                          .call_id = call.id,
                          .name = call.name});
                return;
            }
            case reply::Event::Kind::arguments:
                if (request_.stream)
                    return send(choice, reply,
                                {.kind = Kind::arguments,
                                 .text = text,
                                 .call = reply.calls.size() - 1});
                reply.calls.back().arguments += text;
                return;
            case reply::Event::Kind::call_end:
                reply.has_called = true;
                reply.has_said_enough = !request_.rules.parallel_calls;
                return;
            case reply::Event::Kind::call_failed:
                core_.report(head_.id + " has a tool call that is none: " + text);
                return;
        }
    }

    void send(const Choice& choice, Reply& reply, const ChatDelta& delta) {
        const bool may_join = delta.kind == reply.last_kind && delta.logprobs.empty();
        if (exchange_.merge(may_join ? reply.last_chunk : 0, delta.text)) return;
        reply.last_kind = delta.kind;
        reply.last_chunk =
            exchange_.send(chat_chunk(head_, choice.index, delta, request_.include_usage));
    }

    void send_finish(Choice& choice) override {
        exchange_.send(
            {chat_finish_chunk(head_, choice.index, choice.finish_reason, request_.include_usage)});
    }

    std::int64_t reasoning_tokens(const Choice& choice) const override {
        return replies_[static_cast<std::size_t>(choice.index)]->reader.reasoning_tokens();
    }

    std::string whole_answer(const Usage& usage) override {
        std::vector<ChatChoice> out;
        for (const auto& choice : choices_) {
            const Reply& reply = reply_of(*choice);
            out.push_back({.index = choice->index,
                           .content = reply.content,
                           .reasoning = reply.reasoning,
                           .calls = reply.calls,
                           .logprobs = reply.entries,
                           .finish_reason = choice->finish_reason});
        }
        return chat_completion(head_, out, usage);
    }

    ChatRequest request_;
    std::vector<std::unique_ptr<Reply>> replies_;  // [num_choices]
};

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
    auto job = std::make_shared<ChatJob>(core, model, std::move(*request), http, exchange);
    job->start();
    return job;
}

}  // namespace server
