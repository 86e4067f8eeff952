#include "daemon/server/session/choice_job.hpp"

#include "daemon/server/session/prepare.hpp"

#include <utility>

namespace server {

ChoiceJob::ChoiceJob(Core& core, std::shared_ptr<const Model> model, const HttpRequest& http,
                     HttpExchange& exchange, Setup setup, GenerationParams params,
                     CompletionHead head)
    : core_{core},
      model_{std::move(model)},
      exchange_{exchange},
      setup_{setup},
      params_{std::move(params)},
      head_{std::move(head)},
      client_{http.client},
      received_{http.received} {
    if (setup_.is_stream) exchange_.expect_stream();
}

ChoiceJob::~ChoiceJob() {
    if (!is_done_) count(metrics::Outcome::cancelled);
}

void ChoiceJob::run(std::function<Prompts(const Model&)> make_prompts) {
    core_.helper.run(
        [self = weak_from_this(), model = model_, make_prompts = std::move(make_prompts)] {
            auto prompts = std::make_shared<Prompts>(make_prompts(*model));
            return [self, prompts] {
                if (const auto job = self.lock(); job && !job->is_done_)
                    job->begin(std::move(*prompts));
            };
        },
        [self = weak_from_this()](const std::string& why) {
            const auto job = self.lock();
            if (!job || job->is_done_) return;
            job->core_.report(job->head_.id + " failed: " + why);
            job->fail(internal_error());
        });
}

void ChoiceJob::begin(Prompts prompts) {
    if (const auto refusal = core_.refusal()) return fail(*refusal);
    if (!prompts) return fail(prompts.error());
    for (std::size_t p = 0; p < prompts->size(); ++p) {
        for (std::int32_t i = 0; i < setup_.n; ++i) {
            const int index = static_cast<int>(p) * setup_.n + i;
            Choice& choice = *choices_.emplace_back(std::make_unique<Choice>(*this, index));
            choice.prompt = (*prompts)[p];
            base::Request request =
                make_request(*model_, params_, choice.prompt,
                             default_max_tokens(*model_, choice.prompt.size(), 0));
            request.client = client_;
            request.received = received_;
            // A seed names one text; further choices are other texts.
            if (params_.seed) request.sampling.seed += static_cast<std::uint64_t>(i);
            adjust(request);
            choice.generation_.emplace(core_, model_->codec,
                                       TextStreamOptions{.stop = params_.stop,
                                                         .include_stop = params_.include_stop,
                                                         .render_special = !params_.skip_special,
                                                         .at_text_start = setup_.at_text_start},
                                       setup_.report_tokens, choice);
            Flow* const flow = setup_.is_stream ? &exchange_.flow() : nullptr;
            if (const auto started = choice.generation_->start(std::move(request), flow); !started)
                return fail(from_errc(static_cast<base::Errc>(started.error().value())));
        }
    }
}

void ChoiceJob::on_accepted() {
    if (!std::exchange(has_begun_, true)) on_begin();
}

void ChoiceJob::on_end(Choice& choice, const GenerationEnd& end) {
    using Reason = GenerationEnd::Reason;
    if (end.reason == Reason::error) {
        if (!end.detail.empty()) core_.report(head_.id + " failed: " + end.detail);
        return fail(from_errc(end.error));
    }
    choice.finish_reason = end.reason == Reason::length ? "length" : "stop";
    if (setup_.is_stream) send_finish(choice);
    if (++num_ended_ == choices_.size()) complete();
}

Usage ChoiceJob::total_usage() const {
    Usage total;
    for (const auto& choice : choices_) {
        const Usage& one = choice->generation_->usage();
        total.output_tokens += one.output_tokens;
        if (choice->index % setup_.n != 0) continue;
        total.prompt_tokens += one.prompt_tokens;  // once for all choices of a prompt
        total.cached_tokens += one.cached_tokens;
    }
    return total;
}

void ChoiceJob::complete() {
    is_done_ = true;
    bool hit_length = false;
    for (const auto& choice : choices_) hit_length |= choice->finish_reason == "length";
    count(hit_length ? metrics::Outcome::length : metrics::Outcome::ok);
    if (!setup_.is_stream) return exchange_.reply({.body = whole_answer(total_usage())});
    if (setup_.include_usage) exchange_.send({usage_chunk(head_, total_usage())});
    exchange_.send({"[DONE]"});
    exchange_.finish();
}

void ChoiceJob::abort() {
    fail(from_errc(base::Errc::draining));
}

void ChoiceJob::fail(const ApiError& error) {
    if (is_done_) return;
    is_done_ = true;
    for (const auto& choice : choices_) choice->generation_.reset();
    count(has_begun_ ? metrics::Outcome::error : metrics::Outcome::rejected);
    if (!has_begun_) core_.count_rejection(error);
    if (!exchange_.is_streaming()) return exchange_.refuse(error);
    exchange_.send({error_body(error)});  // and no [DONE]
    exchange_.finish();
}

void ChoiceJob::count(metrics::Outcome outcome) {
    core_.metrics
        .requests(setup_.api, setup_.is_stream ? metrics::Transport::sse : metrics::Transport::http,
                  outcome)
        .add();
}

}  // namespace server
