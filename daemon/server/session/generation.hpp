#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/dispatcher.hpp"
#include "daemon/server/protocol/token_text.hpp"
#include "daemon/server/protocol/usage.hpp"
#include "daemon/server/text_codec.hpp"

#include <memory>
#include <string>
#include <vector>

namespace server {

struct Core;
class Flow;

/// Text that became certain, and the tokens it came from.
struct Delta {
    std::string text;  ///< whole characters; may be empty where only tokens are reported
    std::int32_t num_tokens = 0;      ///< that it came from
    std::vector<ScoredToken> tokens;  ///< the same, where they are reported
};

/// How a generation ended.
struct GenerationEnd {
    enum class Reason : std::uint8_t { stop, length, error };
    Reason reason = Reason::stop;
    base::Errc error{};  ///< with Reason::error
    std::string detail;  ///< words for the log
};

/// Receives one generation's text. on_end may destroy the generation, the others may not.
class GenerationListener {
public:
    virtual ~GenerationListener() = default;
    /// The engine has taken the request: before this, a failure is a refusal.
    virtual void on_accepted() {}
    /// It runs: it waits for its place no longer.
    virtual void on_admitted() {}
    /// The log-probabilities of the prompt, where asked for: one entry for each of its tokens.
    virtual void on_prompt_scored(std::vector<base::TokenLogprobs>&& /*logprobs*/) {}
    virtual void on_delta(Delta&& delta) = 0;
    virtual void on_end(const GenerationEnd& end) = 0;
};

/// One sequence being generated: events of the engine in, text out.
///
/// Stop strings are found here, and end the sequence at the engine. Destroying a generation that
/// has not ended cancels it there. Thread: io.
class Generation final : public RequestListener {
public:
    /// @param report_tokens  deltas carry the tokens, not only the text
    Generation(Core& core, std::shared_ptr<const TextCodec> codec, TextStreamOptions text,
               bool report_tokens, GenerationListener& listener);
    ~Generation() override;
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    /// @param flow  of the connection that the text goes to; outlives the generation. Null: the
    ///              text is kept until it is whole
    /// @return      Errc::queue_full; the generation is then over, without on_end
    [[nodiscard]] base::Result<void> start(base::Request request, Flow* flow);

    /// Enough was said: the text ends where it is, as at a stop string. Only inside of on_delta;
    /// on_end follows.
    void stop() { is_stopped_ = true; }

    [[nodiscard]] const Usage& usage() const { return usage_; }

private:
    void on_event(base::TokenEvent& event) override;
    void on_token(base::TokenEvent& event);
    void deliver(std::string text);
    void observe_token_time(base::Clock::time_point at);
    void end(GenerationEnd end);
    void leave_flow();

    Core& core_;
    std::shared_ptr<const TextCodec> codec_;  // held with the model slot and other generations
    std::unique_ptr<TextStream> stream_;
    GenerationListener& listener_;
    bool report_tokens_;
    bool is_running_ = false;
    bool is_stopped_ = false;  // by a stop string or stop(): what is held back is not shown
    base::RequestId id_{};
    Flow* flow_ = nullptr;
    std::vector<ScoredToken> held_;  // tokens whose text is still held back
    std::int32_t num_held_ = 0;      // the same, whether they are reported or not
    Usage usage_;
    base::Clock::time_point received_{};
    base::Clock::time_point first_token_at_{};
    base::Clock::time_point last_token_at_{};
};

}  // namespace server
