#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/error.hpp"
#include "daemon/base/token_rules.hpp"

namespace base {

using Clock = std::chrono::steady_clock;

/// Names one request between io and engine; never reused within a process.
enum class RequestId : std::uint64_t {};

/// How the next token is chosen. The defaults are "sample from the model's own distribution".
struct Sampling {
    float temperature = 1.0F;        ///< 0 = greedy
    std::int32_t top_k = 0;          ///< 0 = off
    float top_p = 1.0F;              ///< 1 = off
    float min_p = 0.0F;              ///< 0 = off
    float presence_penalty = 0.0F;   ///< subtracted once from tokens generated so far
    float frequency_penalty = 0.0F;  ///< subtracted per occurrence in the generated tokens
    float repetition_penalty = 1.0F; ///< divides positive, multiplies negative logits; prompt included
    std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< token, added
    std::uint64_t seed = 0;          ///< the same seed replays the same text, whatever the neighbours
};

/// Work for the engine: token ids in, token ids out. Text never enters the engine.
struct Request {
    RequestId id{};
    std::uint64_t client = 0;          ///< who to be fair to: one value per connection
    std::int32_t priority = 0;         ///< 0..3; higher first
    std::vector<std::int32_t> prompt;  ///< at least one token
    std::int32_t max_tokens = 0;       ///< generated tokens at most; 0 = only score the prompt
    std::int32_t min_tokens = 0;       ///< end-of-generation tokens are barred before this many
    std::vector<std::int32_t> stop_tokens;  ///< sorted; one of them ends the request (not with ignore_eos)
    Sampling sampling;
    /// What the text must be; null = anything. Held with the other choices of the request, and with the
    /// cache that it came from.
    std::shared_ptr<const TokenRules> rules;
    std::int32_t num_logprobs = -1;    ///< -1 = none; 0 = the chosen token's; n = and the n most likely
    bool prompt_logprobs = false;      ///< score the prompt too (`echo` with logprobs)
    Clock::time_point received{};      ///< when the request arrived whole: TTFT counts from here
    Clock::time_point deadline = Clock::time_point::max();
};

enum class FinishReason : std::uint8_t {
    none,       ///< more tokens follow
    stop,       ///< an end-of-generation token was drawn (it is not delivered as text)
    length,     ///< max_tokens or the end of the context
    cancelled,  ///< by Cancel: the client left, or a stop string was found in the text
    error,      ///< see TokenEvent::error
};

/// Natural-log probabilities of one position.
struct TokenLogprobs {
    float logprob = 0.0F;  ///< of the token itself
    std::vector<std::pair<std::int32_t, float>> top;  ///< most likely first
};

/// What the engine says about a request. Per request: first `accepted` (it will run or be ended with a
/// reason, as opposed to being refused), then `admitted`, then `prompt_scored` where
/// asked for, then `token` for each token, the last event carries a finish reason.
struct TokenEvent {
    enum class Kind : std::uint8_t { accepted, admitted, prompt_scored, token, finished };

    RequestId id{};
    Kind kind = Kind::token;
    FinishReason finish = FinishReason::none;  ///< on `token` and `finished`
    Errc error{};                              ///< with FinishReason::error
    std::int32_t token = -1;                   ///< on `token`
    std::int32_t cached_tokens = 0;            ///< on `admitted`: prompt tokens found in the cache
    Clock::time_point at{};                    ///< when the step that made it was committed
    /// On `token` one entry when asked for; on `prompt_scored` one per prompt token (the first is
    /// NaN: nothing precedes it).
    std::vector<TokenLogprobs> logprobs;
    std::string detail;                        ///< with FinishReason::error: words for the log
};

}  // namespace base
