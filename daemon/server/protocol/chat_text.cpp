#include "daemon/server/protocol/chat_text.hpp"

#include "daemon/server/protocol/json_text.hpp"

namespace server {
namespace {

/// @param entries  separated by commas; "" for null
void append_logprobs(std::string& out, std::string_view entries) {
    if (entries.empty()) {
        out += "null";
        return;
    }
    out += R"({"content":[)";
    out += entries;
    out += R"(],"refusal":null})";
}

void append_calls(std::string& out, std::span<const ChatCall> calls) {
    if (calls.empty()) return;
    out += R"(,"tool_calls":[)";
    for (const ChatCall& call : calls) {
        if (&call != calls.data()) out += ',';
        out += R"({"id":")" + call.id + R"(","type":"function","function":{"name":)";
        append_string(out, call.name);
        out += R"(,"arguments":)";
        append_string(out, call.arguments);
        out += "}}";
    }
    out += ']';
}

}  // namespace

std::string chat_role_chunk(const CompletionHead& head, int index, bool with_null_usage) {
    std::string out = open_completion(head);
    out += R"({"index":)" + std::to_string(index) +
           R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
    out += chunk_end(with_null_usage);
    return out;
}

EventText chat_chunk(const CompletionHead& head, int index, const ChatDelta& delta,
                     bool with_null_usage) {
    using Kind = ChatDelta::Kind;
    EventText out{open_completion(head)};
    std::string& json = out.json;
    json += R"({"index":)" + std::to_string(index) + R"(,"delta":{)";
    const auto append_text = [&] {
        append_escaped(json, delta.text);
        if (delta.logprobs.empty()) out.insert_at = json.size();
        json += '"';
    };
    switch (delta.kind) {
        case Kind::content:
            json += R"("content":")";
            append_text();
            break;
        case Kind::reasoning:
            json += R"("reasoning_content":")";
            append_text();
            break;
        case Kind::call:
            json += R"("content":null,"tool_calls":[{"index":)" + std::to_string(delta.call) +
                    R"(,"id":")";
            json += delta.call_id;
            json += R"(","type":"function","function":{"name":)";
            append_string(json, delta.name);
            json += R"(,"arguments":""}}])";
            break;
        case Kind::arguments:
            json += R"("tool_calls":[{"index":)" + std::to_string(delta.call) +
                    R"(,"function":{"arguments":")";
            append_text();
            json += "}}]";
            break;
    }
    json += R"(},"logprobs":)";
    append_logprobs(json, delta.logprobs);
    json += R"(,"finish_reason":null})";
    json += chunk_end(with_null_usage);
    return out;
}

std::string chat_finish_chunk(const CompletionHead& head, int index, std::string_view finish_reason,
                              bool with_null_usage) {
    std::string out = open_completion(head);
    out += R"({"index":)" + std::to_string(index) + R"(,"delta":{},"logprobs":null)";
    append_reason(out, finish_reason);
    out += '}';
    out += chunk_end(with_null_usage);
    return out;
}

std::string chat_completion(const CompletionHead& head, std::span<const ChatChoice> choices,
                            const Usage& usage) {
    std::string out = open_completion(head);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const ChatChoice& choice = choices[i];
        if (i != 0) out += ',';
        out += R"({"index":)" + std::to_string(choice.index) +
               R"(,"message":{"role":"assistant","content":)";
        if (choice.content.empty() && !choice.calls.empty())
            out += "null";
        else
            append_string(out, choice.content);
        if (!choice.reasoning.empty()) {
            out += R"(,"reasoning_content":)";
            append_string(out, choice.reasoning);
        }
        out += R"(,"refusal":null)";
        append_calls(out, choice.calls);
        out += R"(},"logprobs":)";
        append_logprobs(out, choice.logprobs);
        append_reason(out, choice.finish_reason);
        out += '}';
    }
    append_usage_end(out, usage);
    return out;
}

}  // namespace server
