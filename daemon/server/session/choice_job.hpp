#pragma once

#include "daemon/metrics/labels.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/protocol/completion_text.hpp"
#include "daemon/server/protocol/generation_params.hpp"
#include "daemon/server/session/generation.hpp"
#include "daemon/server/session/http_exchange.hpp"

#include <cstdint>
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
/// Held by its HTTP session, and weakly by work on the helper thread. Thread: io.
class ChoiceJob : public HttpJob, public std::enable_shared_from_this<ChoiceJob> {
public:
    using Ids = std::vector<std::int32_t>;
    using Prompts = Parsed<std::vector<Ids>>;

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

    private:
        void on_accepted() override { job_.on_accepted(); }
        void on_prompt_scored(std::vector<base::TokenLogprobs>&& logprobs) override {
            job_.on_prompt_scored(*this, std::move(logprobs));
        }
        void on_delta(Delta&& delta) override { job_.on_delta(*this, std::move(delta)); }
        void on_end(const GenerationEnd& end) override { job_.on_end(*this, end); }

        ChoiceJob& job_;
        std::optional<Generation> generation_;
        friend class ChoiceJob;

    public:
        int index;
        Ids prompt;
        std::string text;                ///< all of it, where the answer is not streamed
        std::string_view finish_reason;  ///< "" while it runs
        Outbox::Serial last_chunk = 0;   ///< streamed: the delta that may still take text
    };

    ChoiceJob(Core& core, std::shared_ptr<const Model> model, const HttpRequest& http,
              HttpExchange& exchange, Setup setup, GenerationParams params, CompletionHead head);

    /// Makes the prompts on the helper thread and begins.
    void run(std::function<Prompts(const Model&)> make_prompts);

    // ---- what a surface says --------------------------------------------------------------------

    /// Adds what the surface knows to a request made from the common parameters. The default for
    /// max_tokens is to the end of the context.
    virtual void adjust(base::Request& /*request*/) {}
    /// The engine has taken the first choice: from now on the answer is a stream, where one is asked for.
    virtual void on_begin() {}
    virtual void on_prompt_scored(Choice&, std::vector<base::TokenLogprobs>&&) {}
    virtual void on_delta(Choice& choice, Delta&& delta) = 0;
    /// The choice's last chunk; only where the answer is streamed.
    virtual void send_finish(Choice& choice) = 0;
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
    void on_accepted();
    void on_end(Choice& choice, const GenerationEnd& end);
    void complete();
    void fail(const ApiError& error);
    void count(metrics::Outcome outcome);
    [[nodiscard]] Usage total_usage() const;

    std::uint64_t client_;
    base::Clock::time_point received_;
    std::size_t num_ended_ = 0;
    bool has_begun_ = false;
    bool is_done_ = false;
};

}  // namespace server
