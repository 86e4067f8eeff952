#pragma once

#include "daemon/server/protocol/usage.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace server {

/// What all chunks and objects of one completion have in common.
struct CompletionHead {
    std::string id;
    std::string_view object;  ///< "text_completion", "chat.completion", "chat.completion.chunk"
    std::int64_t created = 0;
    std::string model;
    std::string fingerprint;
};

// Parts of both completion surfaces, each appended to `out` or given as text.

/// Everything up to and with `"choices":[`.
[[nodiscard]] std::string open_completion(const CompletionHead& head);
/// Everything after the choices of a chunk.
[[nodiscard]] std::string_view chunk_end(bool with_null_usage);
/// Everything after the choices of a whole answer.
void append_usage_end(std::string& out, const Usage& usage);
/// @param finish_reason  "" for null
void append_reason(std::string& out, std::string_view finish_reason);
/// The last chunk of a stream that was asked for its usage: no choices.
[[nodiscard]] std::string usage_chunk(const CompletionHead& head, const Usage& usage);

}  // namespace server
