#include "daemon/server/protocol/completion_text.hpp"

#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/text_codec.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace server {
namespace {

std::string open_object(const CompletionHead& head) {
    std::string out = R"({"id":")" + head.id + R"(","object":")";
    out += head.object;
    out += R"(","created":)" + std::to_string(head.created) + R"(,"model":)";
    append_string(out, head.model);
    out += R"(,"system_fingerprint":)";
    append_string(out, head.fingerprint);
    out += R"(,"choices":[)";
    return out;
}

void append_reason(std::string& out, std::string_view finish_reason) {
    out += R"(,"finish_reason":)";
    append_string_or_null(out, finish_reason);
}

void append_ids(std::string& out, std::string_view name, const std::vector<std::int32_t>* ids) {
    if (ids == nullptr) return;
    out += ",\"";
    out += name;
    out += "\":[";
    for (std::size_t i = 0; i < ids->size(); ++i) {
        if (i != 0) out += ',';
        out += std::to_string((*ids)[i]);
    }
    out += ']';
}

void append_usage(std::string& out, const Usage& usage) {
    out += R"("usage":{"prompt_tokens":)" + std::to_string(usage.prompt_tokens) +
           R"(,"completion_tokens":)" + std::to_string(usage.output_tokens) +
           R"(,"total_tokens":)" + std::to_string(usage.prompt_tokens + usage.output_tokens) +
           R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(usage.cached_tokens) +
           R"(},"completion_tokens_details":{"reasoning_tokens":)" +
           std::to_string(usage.reasoning_tokens) + "}}";
}

std::string_view chunk_end(bool with_null_usage) {
    return with_null_usage ? R"(],"usage":null})" : "]}";
}

/// @return  where further text may go
std::size_t append_choice(std::string& out, const TextChoice& choice) {
    out += R"({"index":)" + std::to_string(choice.index) + R"(,"text":")";
    append_escaped(out, choice.text);
    const std::size_t text_end = out.size();
    out += R"(","logprobs":)";
    out += choice.logprobs.empty() ? "null" : choice.logprobs;
    append_reason(out, choice.finish_reason);
    append_ids(out, "prompt_token_ids", choice.prompt_token_ids);
    append_ids(out, "token_ids", choice.token_ids);
    out += '}';
    return text_end;
}

std::size_t count_code_points(std::string_view bytes) {
    return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

/// A token as the legacy arrays name it.
std::string legacy_name(std::string_view bytes) {
    if (text::is_valid_utf8(bytes)) return std::string{bytes};
    constexpr char kHex[] = "0123456789abcdef";
    std::string out = "bytes:";
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        out += "\\x";
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
    return out;
}

}  // namespace

void LegacyLogprobs::add(const ScoredToken& scored) {
    if (!tokens_.empty()) {
        tokens_ += ',';
        token_logprobs_ += ',';
        top_logprobs_ += ',';
        text_offset_ += ',';
    }
    const std::string name = legacy_name(codec_->piece(scored.token, true));
    append_string(tokens_, name);
    append_number(token_logprobs_, scored.logprobs.logprob);
    text_offset_ += std::to_string(offset_);
    offset_ += count_code_points(codec_->piece(scored.token, false));
    if (num_top_ == 0) return;
    if (std::isnan(scored.logprobs.logprob)) {
        top_logprobs_ += "null";
        return;
    }
    // Two tokens may print the same; the more likely one keeps the name.
    std::vector<std::string> names;
    const auto append = [&](std::string token_name, float logprob) {
        if (std::find(names.begin(), names.end(), token_name) != names.end()) return;
        if (!names.empty()) top_logprobs_ += ',';
        append_string(top_logprobs_, token_name);
        top_logprobs_ += ':';
        append_number(top_logprobs_, logprob);
        names.push_back(std::move(token_name));
    };
    top_logprobs_ += '{';
    const std::size_t n = std::min(num_top_, scored.logprobs.top.size());
    for (std::size_t i = 0; i < n; ++i) {
        const auto& [token, logprob] = scored.logprobs.top[i];
        append(legacy_name(codec_->piece(token, true)), logprob);
    }
    append(name, scored.logprobs.logprob);
    top_logprobs_ += '}';
}

std::string LegacyLogprobs::take() {
    std::string out = R"({"tokens":[)" + tokens_ + R"(],"token_logprobs":[)" + token_logprobs_ +
                      R"(],"top_logprobs":)" +
                      (num_top_ == 0 ? "null" : '[' + top_logprobs_ + ']') + R"(,"text_offset":[)" +
                      text_offset_ + "]}";
    tokens_.clear();
    token_logprobs_.clear();
    top_logprobs_.clear();
    text_offset_.clear();
    return out;
}

EventText text_chunk(const CompletionHead& head, const TextChoice& choice, bool with_null_usage) {
    EventText out{open_object(head)};
    const std::size_t text_end = append_choice(out.json, choice);
    if (choice.logprobs.empty() && choice.finish_reason.empty() && choice.token_ids == nullptr)
        out.insert_at = text_end;
    out.json += chunk_end(with_null_usage);
    return out;
}

std::string text_completion(const CompletionHead& head, std::span<const TextChoice> choices,
                            const Usage& usage) {
    std::string out = open_object(head);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (i != 0) out += ',';
        append_choice(out, choices[i]);
    }
    out += "],";
    append_usage(out, usage);
    out += '}';
    return out;
}

std::string usage_chunk(const CompletionHead& head, const Usage& usage) {
    std::string out = open_object(head) + "],";
    append_usage(out, usage);
    out += '}';
    return out;
}

std::string chat_role_chunk(const CompletionHead& head, int index, bool with_null_usage) {
    std::string out = open_object(head);
    out += R"({"index":)" + std::to_string(index) +
           R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
    out += chunk_end(with_null_usage);
    return out;
}

EventText chat_chunk(const CompletionHead& head, const ChatChoice& choice, bool with_null_usage) {
    EventText out{open_object(head)};
    out.json += R"({"index":)" + std::to_string(choice.index) + R"(,"delta":{"content":")";
    append_escaped(out.json, choice.content);
    if (choice.logprobs.empty()) out.insert_at = out.json.size();
    out.json += R"("},"logprobs":)";
    if (choice.logprobs.empty()) {
        out.json += "null";
    } else {
        out.json += R"({"content":[)";
        out.json += choice.logprobs;
        out.json += R"(],"refusal":null})";
    }
    out.json += R"(,"finish_reason":null})";
    out.json += chunk_end(with_null_usage);
    return out;
}

std::string chat_finish_chunk(const CompletionHead& head, int index, std::string_view finish_reason,
                              bool with_null_usage) {
    std::string out = open_object(head);
    out += R"({"index":)" + std::to_string(index) + R"(,"delta":{},"logprobs":null)";
    append_reason(out, finish_reason);
    out += '}';
    out += chunk_end(with_null_usage);
    return out;
}

std::string chat_completion(const CompletionHead& head, std::span<const ChatChoice> choices,
                            const Usage& usage) {
    std::string out = open_object(head);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const ChatChoice& choice = choices[i];
        if (i != 0) out += ',';
        out += R"({"index":)" + std::to_string(choice.index) +
               R"(,"message":{"role":"assistant","content":)";
        append_string(out, choice.content);
        out += R"(,"refusal":null},"logprobs":)";
        if (choice.logprobs.empty()) {
            out += "null";
        } else {
            out += R"({"content":[)";
            out += choice.logprobs;
            out += R"(],"refusal":null})";
        }
        append_reason(out, choice.finish_reason);
        out += '}';
    }
    out += "],";
    append_usage(out, usage);
    out += '}';
    return out;
}

}  // namespace server
