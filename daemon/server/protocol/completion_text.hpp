#pragma once

#include "daemon/server/protocol/event_text.hpp"
#include "daemon/server/protocol/token_text.hpp"
#include "daemon/server/protocol/usage.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// What all chunks and objects of one completion have in common.
struct CompletionHead {
    std::string id;
    std::string_view object;  ///< "text_completion", "chat.completion", "chat.completion.chunk"
    std::int64_t created = 0;
    std::string model;
    std::string fingerprint;
};

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

/// One chunk of a stream, or a part of the choices of a whole answer.
struct TextChoice {
    int index = 0;
    std::string_view text;
    std::string_view logprobs;                             ///< an object, or "" for null
    std::string_view finish_reason;                        ///< "" for null
    const std::vector<std::int32_t>* token_ids = nullptr;  ///< where asked for
    const std::vector<std::int32_t>* prompt_token_ids = nullptr;
};

/// The pieces of legacy completions.
[[nodiscard]] EventText text_chunk(const CompletionHead& head, const TextChoice& choice,
                                   bool with_null_usage);
[[nodiscard]] std::string text_completion(const CompletionHead& head,
                                          std::span<const TextChoice> choices, const Usage& usage);
/// The last chunk of a stream that was asked for its usage: no choices.
[[nodiscard]] std::string usage_chunk(const CompletionHead& head, const Usage& usage);

/// One choice of a chat completion.
struct ChatChoice {
    int index = 0;
    std::string_view content;
    std::string_view logprobs;  ///< entries separated by commas; "" for null
    std::string_view finish_reason;
};

/// The first chunk of a choice: {"role":"assistant","content":""}.
[[nodiscard]] std::string chat_role_chunk(const CompletionHead& head, int index,
                                          bool with_null_usage);
[[nodiscard]] EventText chat_chunk(const CompletionHead& head, const ChatChoice& choice,
                                   bool with_null_usage);
/// The last chunk of a choice: an empty delta with the reason.
[[nodiscard]] std::string chat_finish_chunk(const CompletionHead& head, int index,
                                            std::string_view finish_reason, bool with_null_usage);
[[nodiscard]] std::string chat_completion(const CompletionHead& head,
                                          std::span<const ChatChoice> choices, const Usage& usage);

}  // namespace server
