#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/routes/jobs.hpp"
#include "daemon/server/session/choice_job.hpp"
#include "daemon/server/session/prepare.hpp"

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

namespace server {
namespace {

/// POST /v1/completions.
class CompletionJob final : public ChoiceJob {
public:
    CompletionJob(Core& core, std::shared_ptr<const Model> model, CompletionRequest request,
                  const HttpRequest& http, HttpExchange& exchange)
        : ChoiceJob{core,
                    model,
                    http,
                    exchange,
                    Setup{.api = metrics::Api::completions,
                          .n = request.n,
                          .is_stream = request.stream,
                          .include_usage = request.include_usage,
                          .report_tokens = request.num_logprobs >= 0 || request.return_token_ids},
                    request.params,
                    CompletionHead{random_id("cmpl-"), "text_completion",
                                   static_cast<std::int64_t>(std::time(nullptr)), request.model,
                                   model->card.fingerprint}},
          request_{std::move(request)} {}

    void start() {
        const int num_new = request_.params.max_tokens > 0 ? 1 : 0;
        std::size_t bytes = 0;
        for (const Prompt& prompt : request_.prompts) {
            const auto* ids = std::get_if<Ids>(&prompt);
            bytes += ids != nullptr ? ids->size() * sizeof(ids->front())
                                    : std::get<std::string>(prompt).size();
        }
        run(bytes, [prompts = request_.prompts, num_new, &core = core_](
                       const Model& model, const IsCancelled& is_cancelled) -> Prompts {
            std::vector<EncodedPrompt> encoded;
            for (const Prompt& prompt : prompts) {
                if (is_cancelled()) return from_errc(base::Errc::cancelled);
                auto one = encode_prompt(model, core.metrics, prompt, num_new);
                if (!one) return one.error();
                encoded.push_back(std::move(*one));
            }
            return encoded;
        });
    }

private:
    void on_choices() override {
        if (has_logprobs())
            logprobs_.assign(choices_.size(), {static_cast<std::size_t>(request_.num_logprobs),
                                               *model_->codec});
        token_ids_.resize(choices_.size());
        texts_.resize(choices_.size());
        prompt_logprobs_.resize(choices_.size());
        last_chunks_.resize(choices_.size());
    }

    void adjust(base::Request& request) const override {
        request.max_tokens = std::min(request.max_tokens, request_.params.max_tokens);
        request.min_tokens = std::min(request.min_tokens, request.max_tokens);
        request.num_logprobs = std::max(request_.num_logprobs, request_.num_prompt_logprobs);
        request.prompt_logprobs = scores_prompt_for_echo() || request_.num_prompt_logprobs >= 0;
    }

    void on_begin() override {
        if (!request_.echo || has_logprobs()) return;  // with logprobs: once they are there
        for (const auto& choice : choices_) add(*choice, echoed_text(*choice), {});
    }

    void on_prompt_scored(Choice& choice, std::vector<base::TokenLogprobs>&& scores) override {
        const Ids& prompt = choice.prompt.ids;
        if (request_.num_prompt_logprobs >= 0) {
            prompt_logprobs_[at(choice)] = prompt_logprobs_list(
                prompt, scores, static_cast<std::size_t>(request_.num_prompt_logprobs),
                *model_->codec);
        }
        if (!scores_prompt_for_echo()) return;
        std::vector<ScoredToken> tokens;
        for (std::size_t i = 0; i < prompt.size() && i < scores.size(); ++i) {
            if (i == 0) scores[i] = {std::numeric_limits<float>::quiet_NaN(), {}};
            tokens.push_back({prompt[i], std::move(scores[i])});
        }
        add(choice, echoed_text(choice), tokens);
    }

    void on_delta(Choice& choice, Delta&& delta) override {
        if (request_.return_token_ids)
            for (const ScoredToken& scored : delta.tokens)
                token_ids_[at(choice)].push_back(scored.token);
        add(choice, std::move(delta.text), delta.tokens);
    }

    void send_finish(Choice& choice) override {
        const std::string entries = take_logprobs(choice);
        const TextChoice last{
            .index = choice.index, .logprobs = entries, .finish_reason = choice.finish_reason};
        exchange_.send(text_chunk(head_, last, request_.include_usage));
    }

    std::string whole_answer(const Usage& usage) override {
        std::vector<std::string> logprobs;
        for (const auto& choice : choices_) logprobs.push_back(take_logprobs(*choice));
        std::vector<TextChoice> out;
        for (const auto& choice : choices_) {
            const bool ids = request_.return_token_ids;
            out.push_back({.index = choice->index,
                           .text = texts_[at(*choice)],
                           .logprobs = logprobs[at(*choice)],
                           .finish_reason = choice->finish_reason,
                           .prompt_logprobs = prompt_logprobs_[at(*choice)],
                           .token_ids = ids ? &token_ids_[at(*choice)] : nullptr,
                           .prompt_token_ids = ids ? &choice->prompt.ids : nullptr});
        }
        return text_completion(head_, out, usage);
    }

    void add(Choice& choice, std::string text, const std::vector<ScoredToken>& tokens) {
        if (has_logprobs())
            for (const ScoredToken& scored : tokens) logprobs_[at(choice)].add(scored);
        if (!request_.stream) {
            texts_[at(choice)] += text;
            return;
        }
        Outbox::Serial& last_chunk = last_chunks_[at(choice)];
        if (exchange_.merge(tokens.empty() ? last_chunk : 0, text)) return;
        const std::string entries = take_logprobs(choice);
        const Ids ids =
            request_.return_token_ids ? std::exchange(token_ids_[at(choice)], {}) : Ids{};
        const TextChoice chunk{.index = choice.index,
                               .text = text,
                               .logprobs = entries,
                               .token_ids = request_.return_token_ids ? &ids : nullptr};
        last_chunk = exchange_.send(text_chunk(head_, chunk, request_.include_usage));
    }

    /// The logprobs object with what came since the last call, or "".
    std::string take_logprobs(const Choice& choice) {
        if (!has_logprobs()) return {};
        LegacyLogprobs& logprobs = logprobs_[at(choice)];
        return logprobs.is_empty() ? std::string{} : logprobs.take();
    }

    std::string echoed_text(const Choice& choice) const {
        const Prompt& prompt = request_.prompts[at(choice) / static_cast<std::size_t>(request_.n)];
        if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
        std::string bytes;
        for (const std::int32_t id : choice.prompt.ids) bytes += model_->codec->piece(id, false);
        return lossy_text(bytes);
    }

    static std::size_t at(const Choice& choice) { return static_cast<std::size_t>(choice.index); }
    [[nodiscard]] bool has_logprobs() const { return request_.num_logprobs >= 0; }
    [[nodiscard]] bool scores_prompt_for_echo() const { return request_.echo && has_logprobs(); }

    CompletionRequest request_;
    std::vector<LegacyLogprobs> logprobs_;      // [num_choices], or empty
    std::vector<Ids> token_ids_;                // [num_choices], generated
    std::vector<std::string> texts_;            // [num_choices], where the answer is not streamed
    std::vector<std::string> prompt_logprobs_;  // [num_choices], where asked for
    std::vector<Outbox::Serial> last_chunks_;   // [num_choices] that may still take text
};

}  // namespace

std::shared_ptr<HttpJob> serve_completions(Core& core, const HttpRequest& http,
                                           HttpExchange& exchange) {
    const auto refuse = [&](const ApiError& error) {
        core.count_rejection(error);
        exchange.refuse(error);
        return std::shared_ptr<HttpJob>{};
    };
    const auto model = core.model();
    const auto body = parse_object(http.body, core.options.strict_parameters);
    if (!body) return refuse(body.error());
    auto request = parse_completion_request(*body, core.parse_context(*model, true));
    if (!request) return refuse(request.error());
    if (!model->is_named(request->model)) return refuse(model_not_found(request->model));
    auto job = std::make_shared<CompletionJob>(core, model, std::move(*request), http, exchange);
    job->start();
    return job;
}

}  // namespace server
