#pragma once

#include "daemon/metrics/labels.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/protocol/completion_text.hpp"
#include "daemon/server/protocol/generation_params.hpp"
#include "daemon/server/session/generation.hpp"
#include "daemon/server/session/http_exchange.hpp"
#include "daemon/server/session/prepare.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// A request answered by one or more sequences ("choices"): what the two completion surfaces have
/// in common. A surface says how prompts are made and how a choice is written.
///
/// Held by its HTTP session, and weakly by work on the helper threads. Thread: io.
class ChoiceJob : public HttpJob, public std::enable_shared_from_this<ChoiceJob> {
public:
    using Ids = std::vector<std::int32_t>;
    using Prompts = Parsed<std::vector<EncodedPrompt>>;
    /// Whether nobody waits for the prompts any more.
    using IsCancelled = std::function<bool()>;

    ~ChoiceJob() override;
    void abort() override;

protected:
    struct Setup {
        metrics::Api api;
        std::int32_t n = 1;  ///< choices for each prompt
        bool is_stream = false;
        bool include_usage = false;
        bool report_tokens = false;
        bool at_text_start = false;
    };

    /// One sequence and what has been said of it.
    class Choice final : public GenerationListener {
    public:
        Choice(ChoiceJob& job, int number) : job_{job}, index{number} {}
        /// Enough was said (Generation::stop).
        void stop() { generation_->stop(); }

    private:
        void on_accepted() override { job_.on_accepted(*this); }
        void on_admitted() override { job_.on_admitted(*this); }
        void on_prompt_scored(std::vector<base::TokenLogprobs>&& logprobs) override {
            job_.on_prompt_scored(*this, std::move(logprobs));
        }
        void on_delta(Delta&& delta) override { job_.on_delta(*this, std::move(delta)); }
        void on_end(const GenerationEnd& end) override { job_.on_end(*this, end); }

        ChoiceJob& job_;
        std::optional<Generation> generation_;
        bool is_accepted_ = false;
        bool is_admitted_ = false;
        friend class ChoiceJob;

    public:
        int index;
        EncodedPrompt prompt;
        std::string_view finish_reason;  ///< "" while it runs
    };

    ChoiceJob(Core& core, std::shared_ptr<const Model> model, const HttpRequest& http,
              HttpExchange& exchange, Setup setup, GenerationParams params, CompletionHead head);

    /// Makes the prompts on a helper thread and begins.
    /// @param bytes  what make_prompts holds, roughly
    void run(std::size_t bytes,
             std::function<Prompts(const Model&, const IsCancelled&)> make_prompts);

    // ---- what a surface says --------------------------------------------------------------------

    /// The choices are there, none of them runs yet.
    virtual void on_choices() = 0;
    /// Adds what the surface knows to a request made from the common parameters. The default for
    /// max_tokens is to the end of the context.
    virtual void adjust(base::Request& request) const = 0;
    /// The engine has taken the first choice: from now on the answer is a stream, where one is asked for.
    virtual void on_begin() {}
    virtual void on_prompt_scored(Choice&, std::vector<base::TokenLogprobs>&&) {}
    virtual void on_delta(Choice& choice, Delta&& delta) = 0;
    /// No delta follows; `finish_reason` may be made another.
    virtual void on_finish(Choice&) {}
    /// The choice's last chunk; only where the answer is streamed.
    virtual void send_finish(Choice& choice) = 0;
    /// Tokens of the choice's output that were reasoning.
    [[nodiscard]] virtual std::int64_t reasoning_tokens(const Choice&) const { return 0; }
    /// The answer that is not streamed.
    [[nodiscard]] virtual std::string whole_answer(const Usage& usage) = 0;

    Core& core_;
    std::shared_ptr<const Model> model_;  // the snapshot this request began with
    HttpExchange& exchange_;
    Setup setup_;
    GenerationParams params_;
    CompletionHead head_;
    std::vector<std::unique_ptr<Choice>> choices_;

private:
    void begin(Prompts prompts);
    void submit_more();
    [[nodiscard]] base::Result<void> submit(Choice& choice);
    void on_accepted(Choice& choice);
    void on_admitted(Choice& choice);
    void on_end(Choice& choice, const GenerationEnd& end);
    void complete();
    void fail(const ApiError& error);
    void count(metrics::Outcome outcome);
    [[nodiscard]] Usage total_usage() const;

    std::uint64_t client_;
    base::Clock::time_point received_;
    std::deque<Choice*> unsubmitted_;
    std::size_t num_live_ = 0;     // at the engine
    std::size_t num_waiting_ = 0;  // of those, not admitted yet
    std::size_t num_ended_ = 0;
    bool has_begun_ = false;
    bool is_done_ = false;
};

}  // namespace server
