#include "daemon/server/protocol/completion_frame.hpp"

#include "daemon/server/protocol/json_text.hpp"

namespace server {

std::string open_completion(const CompletionHead& head) {
    std::string out = R"({"id":")" + head.id + R"(","object":")";
    out += head.object;
    out += R"(","created":)" + std::to_string(head.created) + R"(,"model":)";
    append_string(out, head.model);
    out += R"(,"system_fingerprint":)";
    append_string(out, head.fingerprint);
    out += R"(,"choices":[)";
    return out;
}

std::string_view chunk_end(bool with_null_usage) {
    return with_null_usage ? R"(],"usage":null})" : "]}";
}

void append_usage_end(std::string& out, const Usage& usage) {
    out += R"(],"usage":{"prompt_tokens":)" + std::to_string(usage.prompt_tokens) +
           R"(,"completion_tokens":)" + std::to_string(usage.output_tokens) +
           R"(,"total_tokens":)" + std::to_string(usage.prompt_tokens + usage.output_tokens) +
           R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(usage.cached_tokens) +
           R"(},"completion_tokens_details":{"reasoning_tokens":)" +
           std::to_string(usage.reasoning_tokens) + "}}}";
}

void append_reason(std::string& out, std::string_view finish_reason) {
    out += R"(,"finish_reason":)";
    append_string_or_null(out, finish_reason);
}

std::string usage_chunk(const CompletionHead& head, const Usage& usage) {
    std::string out = open_completion(head);
    append_usage_end(out, usage);
    return out;
}

}  // namespace server
