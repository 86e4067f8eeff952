#pragma once

#include "daemon/server/protocol/completion_frame.hpp"
#include "daemon/server/protocol/event_text.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace server {

/// What one chunk of a chat completion adds to its choice.
struct ChatDelta {
    enum class Kind : std::uint8_t { content, reasoning, call, arguments };
    Kind kind = Kind::content;
    std::string_view text;      ///< of content, reasoning and arguments
    std::string_view logprobs;  ///< content: entries separated by commas; "" for null
    std::size_t call = 0;       ///< call, arguments: which of the choice's calls
    std::string_view call_id;   ///< call
    std::string_view name;      ///< call: the function
};

/// A call of a function, whole or as far as it came.
struct ChatCall {
    std::string id;
    std::string name;
    std::string arguments;
};

/// One choice of a chat completion that is not streamed.
struct ChatChoice {
    int index = 0;
    std::string_view content;  ///< "" is null beside calls
    std::string_view reasoning;
    std::span<const ChatCall> calls;
    std::string_view logprobs;  ///< entries separated by commas; "" for null
    std::string_view finish_reason;
};

/// The first chunk of a choice: {"role":"assistant","content":""}.
[[nodiscard]] std::string chat_role_chunk(const CompletionHead& head, int index,
                                          bool with_null_usage);
[[nodiscard]] EventText chat_chunk(const CompletionHead& head, int index, const ChatDelta& delta,
                                   bool with_null_usage);
/// The last chunk of a choice: an empty delta with the reason.
[[nodiscard]] std::string chat_finish_chunk(const CompletionHead& head, int index,
                                            std::string_view finish_reason, bool with_null_usage);
[[nodiscard]] std::string chat_completion(const CompletionHead& head,
                                          std::span<const ChatChoice> choices, const Usage& usage);

}  // namespace server
