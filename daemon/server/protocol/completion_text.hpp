#pragma once

#include "daemon/server/protocol/completion_frame.hpp"
#include "daemon/server/protocol/event_text.hpp"
#include "daemon/server/protocol/token_text.hpp"
#include "daemon/server/protocol/usage.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// The parallel arrays that /v1/completions knows as logprobs. Offsets go on from chunk to chunk.
class LegacyLogprobs {
public:
    /// @param num_top  alternatives a token; with 0 the whole of top_logprobs is null
    LegacyLogprobs(std::size_t num_top, const TextCodec& codec)
        : num_top_{num_top}, codec_{&codec} {}

    /// @param scored  NaN as log-probability: nothing precedes the token, written as null
    void add(const ScoredToken& scored);
    [[nodiscard]] bool is_empty() const { return tokens_.empty(); }
    /// The object with what was added since the last call.
    [[nodiscard]] std::string take();

private:
    std::size_t num_top_;
    const TextCodec* codec_;
    std::string tokens_, token_logprobs_, top_logprobs_, text_offset_;  // items, comma-separated
    std::size_t offset_ = 0;                                            // code points
};

/// The list that vLLM knows as prompt_logprobs: for each token of the prompt null (the first), or
/// {"<id>":{"logprob","rank","decoded_token"}} of the most likely ones and the token itself.
[[nodiscard]] std::string prompt_logprobs_list(std::span<const std::int32_t> prompt,
                                               std::span<const base::TokenLogprobs> scores,
                                               std::size_t num_top, const TextCodec& codec);

/// One chunk of a stream, or a part of the choices of a whole answer.
struct TextChoice {
    int index = 0;
    std::string_view text;
    std::string_view logprobs;                             ///< an object, or "" for null
    std::string_view finish_reason;                        ///< "" for null
    std::string_view prompt_logprobs;                      ///< a list; "" where not asked for
    const std::vector<std::int32_t>* token_ids = nullptr;  ///< where asked for
    const std::vector<std::int32_t>* prompt_token_ids = nullptr;
};

/// The pieces of legacy completions.
[[nodiscard]] EventText text_chunk(const CompletionHead& head, const TextChoice& choice,
                                   bool with_null_usage);
[[nodiscard]] std::string text_completion(const CompletionHead& head,
                                          std::span<const TextChoice> choices, const Usage& usage);

}  // namespace server
