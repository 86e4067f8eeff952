#include "daemon/server/session/choice_job.hpp"

#include <utility>

namespace server {
namespace {

constexpr std::size_t kMaxWaiting = 32;  // choices of one request in the engine's queue

}  // namespace

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

void ChoiceJob::run(std::size_t bytes,
                    std::function<Prompts(const Model&, const IsCancelled&)> make_prompts) {
    const bool is_taken = core_.helper.run(
        bytes,
        [self = weak_from_this(), model = model_, make_prompts = std::move(make_prompts)] {
            auto prompts = std::make_shared<Prompts>(
                make_prompts(*model, [&self] { return self.expired(); }));
            return [self, prompts] {
                if (const auto job = self.lock(); job && !job->is_done_)
                    job->begin(std::move(*prompts));
            };
        },
        [self = weak_from_this()](const std::string& why) {
            const auto job = self.lock();
            if (!job || job->is_done_) return;
            ApiError error = internal_error();
            error.log = why;
            job->fail(error);
        });
    if (!is_taken) fail(overloaded("Too many requests wait to be tokenized."));
}

void ChoiceJob::begin(Prompts prompts) {
    if (const auto refusal = core_.refusal()) return fail(*refusal);
    if (!prompts) return fail(prompts.error());
    for (std::size_t p = 0; p < prompts->size(); ++p) {
        for (std::int32_t i = 0; i < setup_.n; ++i) {
            const int index = static_cast<int>(p) * setup_.n + i;
            Choice& choice = *choices_.emplace_back(std::make_unique<Choice>(*this, index));
            choice.prompt = (*prompts)[p];
            unsubmitted_.push_back(&choice);
        }
    }
    on_choices();
    submit_more();
}

/// A request of many choices takes a few places in the queue, not all that there are.
void ChoiceJob::submit_more() {
    while (!unsubmitted_.empty() && num_waiting_ < kMaxWaiting) {
        Choice& choice = *unsubmitted_.front();
        if (const auto started = submit(choice); !started) {
            choice.generation_.reset();
            if (num_live_ > 0) return;  // one of them will leave the queue, and then we are back
            return fail(from_errc(static_cast<base::Errc>(started.error().value())));
        }
        unsubmitted_.pop_front();
        ++num_live_;
        ++num_waiting_;
    }
}

base::Result<void> ChoiceJob::submit(Choice& choice) {
    const Ids& prompt = choice.prompt.ids;
    base::Request request =
        make_request(*model_, params_, prompt, default_max_tokens(*model_, prompt.size(), 0));
    request.rules = choice.prompt.rules;
    request.client = client_;
    // Time limits count from when a choice had its turn: only the first ones have it at once.
    request.received = num_ended_ == 0 && !has_begun_ ? received_ : base::Clock::now();
    request.deadline = deadline_of(core_, received_);
    // A seed names one text; further choices are other texts.
    if (params_.seed)
        request.sampling.seed += static_cast<std::uint64_t>(choice.index % setup_.n);
    adjust(request);
    choice.generation_.emplace(core_, model_->codec,
                               TextStreamOptions{.stop = params_.stop,
                                                 .include_stop = params_.include_stop,
                                                 .render_special = !params_.skip_special,
                                                 .at_text_start = setup_.at_text_start,
                                                 .marks_of = choice.prompt.shape.format},
                               setup_.report_tokens, choice);
    return choice.generation_->start(std::move(request),
                                     setup_.is_stream ? &exchange_.flow() : nullptr);
}

void ChoiceJob::on_accepted(Choice& choice) {
    choice.is_accepted_ = true;
    if (!std::exchange(has_begun_, true)) on_begin();
}

void ChoiceJob::on_admitted(Choice& choice) {
    choice.is_admitted_ = true;
    --num_waiting_;
    submit_more();
}

void ChoiceJob::on_end(Choice& choice, const GenerationEnd& end) {
    using Reason = GenerationEnd::Reason;
    --num_live_;
    if (!choice.is_admitted_) --num_waiting_;
    if (end.reason == Reason::error) {
        // Others filled the queue meanwhile: this one has its turn when one of ours has left it.
        const bool may_wait =
            end.error == base::Errc::queue_full && !choice.is_accepted_ && num_live_ > 0;
        if (may_wait) {
            unsubmitted_.push_front(&choice);
            choice.generation_.reset();
            return;
        }
        ApiError error = from_errc(end.error);
        if (!end.detail.empty()) error.log = end.detail;
        return fail(error);
    }
    choice.finish_reason = end.reason == Reason::length ? "length" : "stop";
    on_finish(choice);
    if (setup_.is_stream) send_finish(choice);
    if (++num_ended_ == choices_.size()) return complete();
    submit_more();
}

Usage ChoiceJob::total_usage() const {
    Usage total;
    for (const auto& choice : choices_) {
        const Usage& one = choice->generation_->usage();
        total.output_tokens += one.output_tokens;
        total.reasoning_tokens += reasoning_tokens(*choice);
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
    if (!error.log.empty()) core_.report(head_.id + " failed: " + error.log);
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
