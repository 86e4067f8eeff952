#include "daemon/server/protocol/response_events.hpp"

#include "daemon/server/protocol/json_text.hpp"

#include <boost/json/serialize.hpp>

#include <charconv>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

// Readers refuse messages over 1 MiB by default, so what is only repeated has a bound of its own.
constexpr std::size_t kMaxEchoBytes = 512U << 10U;

/// The double that prints like the float: 0.9, not 0.899999976.
double tidy(float value) {
    char digits[32];
    const auto written = std::to_chars(digits, digits + sizeof digits, value);
    double out = 0;
    std::from_chars(digits, written.ptr, out);
    return out;
}

/// The fields that are the same in every event of a response.
json::object static_fields(const ResponseRequest& request, std::string_view fingerprint) {
    const json::object& echo = request.echo;
    const auto member = [&](std::string_view key, json::value otherwise) {
        const json::value* value = echo.if_contains(key);
        return value == nullptr ? std::move(otherwise) : *value;
    };
    json::object out;
    out["background"] = false;
    out["instructions"] = member("instructions", nullptr);
    out["max_output_tokens"] = member("max_output_tokens", nullptr);
    out["max_tool_calls"] = member("max_tool_calls", nullptr);
    out["model"] = request.model;
    out["parallel_tool_calls"] = member("parallel_tool_calls", true);
    out["previous_response_id"] = request.previous_response_id.empty()
                                      ? json::value(nullptr)
                                      : json::value(request.previous_response_id);
    out["prompt_cache_key"] = member("prompt_cache_key", nullptr);
    out["reasoning"] = member("reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}});
    out["safety_identifier"] = member("safety_identifier", nullptr);
    out["service_tier"] = "default";
    out["store"] = false;
    out["temperature"] = tidy(request.params.sampling.temperature);
    out["text"] = member(
        "text", json::object{{"format", json::object{{"type", "text"}}}, {"verbosity", "medium"}});
    out["tool_choice"] = member("tool_choice", "auto");
    out["tools"] = member("tools", json::array{});
    out["top_logprobs"] = request.top_logprobs;
    out["top_p"] = tidy(request.params.sampling.top_p);
    out["presence_penalty"] = tidy(request.params.sampling.presence_penalty);
    out["frequency_penalty"] = tidy(request.params.sampling.frequency_penalty);
    out["truncation"] = member("truncation", "disabled");
    out["metadata"] = member("metadata", json::object{});
    out["access_programs"] = nullptr;
    if (const json::value* user = echo.if_contains("user")) out["user"] = *user;
    out["system_fingerprint"] = fingerprint;
    return out;
}

}  // namespace

ResponseEvents::ResponseEvents(const ResponseRequest& request, std::string response_id,
                               std::string item_id, std::string_view fingerprint,
                               std::int64_t created_at)
    : response_id_{std::move(response_id)}, item_id_{std::move(item_id)} {
    head_ = R"({"id":")" + response_id_ + R"(","object":"response","created_at":)" +
            std::to_string(created_at) + R"(,"status":")";
    json::object fixed = static_fields(request, fingerprint);
    tail_ = json::serialize(fixed);
    if (tail_.size() > kMaxEchoBytes) {
        fixed["instructions"] = nullptr;
        fixed["tools"] = json::array{};
        tail_ = json::serialize(fixed);
    }
    tail_.erase(0, 1);
    if (!request.stream_id.empty())
        stream_id_ = R"(,"stream_id":")" + request.stream_id + '"';  // of a set without quotes
}

void ResponseEvents::open_event(std::string& out, std::string_view type) {
    out += R"({"type":"response.)";
    out += type;
    out += R"(","sequence_number":)" + std::to_string(sequence_number_++);
}

void ResponseEvents::close_event(std::string& out) const {
    out += stream_id_;
    out += '}';
}

std::string ResponseEvents::created() {
    std::string out;
    open_event(out, "created");
    out += R"(,"response":)";
    append_response(out, "in_progress", false, nullptr, nullptr, false, 0);
    close_event(out);
    return out;
}

std::string ResponseEvents::in_progress() {
    std::string out;
    open_event(out, "in_progress");
    out += R"(,"response":)";
    append_response(out, "in_progress", false, nullptr, nullptr, false, 0);
    close_event(out);
    return out;
}

std::string ResponseEvents::item_added() {
    has_item_ = true;
    std::string out;
    open_event(out, "output_item.added");
    out += R"(,"output_index":0,"item":{"id":")" + item_id_ +
           R"(","type":"message","status":"in_progress","role":"assistant","content":[]})";
    close_event(out);
    return out;
}

std::string ResponseEvents::part_added() {
    std::string out;
    open_event(out, "content_part.added");
    out += R"(,"item_id":")" + item_id_ + R"(","output_index":0,"content_index":0,"part":)" +
           R"({"type":"output_text","text":"","annotations":[],"logprobs":[]})";
    close_event(out);
    return out;
}

EventText ResponseEvents::delta(std::string_view text, std::string_view logprobs) {
    text_ += text;
    if (!logprobs.empty()) {
        if (!logprobs_.empty()) logprobs_ += ',';
        logprobs_ += logprobs;
    }
    EventText out;
    out.json.reserve(220 + text.size() + logprobs.size());
    open_event(out.json, "output_text.delta");
    out.json += R"(,"item_id":")";
    out.json += item_id_;
    out.json += R"(","output_index":0,"content_index":0,"delta":")";
    append_escaped(out.json, text);
    if (logprobs.empty()) out.insert_at = out.json.size();
    out.json += R"(","logprobs":[)";
    out.json += logprobs;
    out.json += ']';
    close_event(out.json);
    return out;
}

std::string ResponseEvents::text_done() {
    std::string out;
    open_event(out, "output_text.done");
    out += R"(,"item_id":")" + item_id_ + R"(","output_index":0,"content_index":0,"text":)";
    append_string(out, text_);
    out += R"(,"logprobs":[)" + logprobs_ + ']';
    close_event(out);
    return out;
}

std::string ResponseEvents::part_done() {
    std::string out;
    open_event(out, "content_part.done");
    out += R"(,"item_id":")" + item_id_ + R"(","output_index":0,"content_index":0,"part":)";
    append_part(out);
    close_event(out);
    return out;
}

std::string ResponseEvents::item_done(bool is_complete) {
    item_status_ = is_complete ? "completed" : "incomplete";
    std::string out;
    open_event(out, "output_item.done");
    out += R"(,"output_index":0,"item":)";
    append_item(out, item_status_);
    close_event(out);
    return out;
}

std::string ResponseEvents::terminal(ResponseEnd end, const Usage& usage, const ApiError* error,
                                     std::int64_t completed_at) {
    std::string out;
    open_event(out, end == ResponseEnd::completed ? "completed"
                    : end == ResponseEnd::failed  ? "failed"
                                                  : "incomplete");
    out += R"(,"response":)";
    out += response_object(end, usage, error, completed_at);
    close_event(out);
    return out;
}

std::string ResponseEvents::response_object(ResponseEnd end, const Usage& usage,
                                            const ApiError* error,
                                            std::int64_t completed_at) const {
    constexpr std::string_view kStatus[] = {"completed", "incomplete", "cancelled", "failed"};
    std::string out;
    append_response(out, kStatus[static_cast<std::size_t>(end)], end != ResponseEnd::failed, &usage,
                    error, end == ResponseEnd::incomplete,
                    end == ResponseEnd::completed ? completed_at : 0);
    return out;
}

void ResponseEvents::append_part(std::string& out) const {
    out += R"({"type":"output_text","text":)";
    append_string(out, text_);
    out += R"(,"annotations":[],"logprobs":[)" + logprobs_ + "]}";
}

void ResponseEvents::append_item(std::string& out, std::string_view status) const {
    out += R"({"id":")" + item_id_ + R"(","type":"message","status":")";
    out += status;
    out += R"(","role":"assistant","content":[)";
    append_part(out);
    out += "]}";
}

void ResponseEvents::append_response(std::string& out, std::string_view status, bool has_output,
                                     const Usage* usage, const ApiError* error, bool hit_length,
                                     std::int64_t completed_at) const {
    out += head_;
    out += status;
    out += R"(","completed_at":)";
    out += completed_at == 0 ? "null" : std::to_string(completed_at);
    out += R"(,"error":)";
    if (error != nullptr) {
        out += R"({"code":)";
        append_string(out, error->code);
        out += R"(,"message":)";
        append_string(out, error->message);
        out += '}';
    } else {
        out += "null";
    }
    out += R"(,"incomplete_details":)";
    out += hit_length ? R"({"reason":"max_output_tokens"})" : "null";
    out += R"(,"output":[)";
    if (has_output && has_item_) append_item(out, item_status_);
    out += R"(],"usage":)";
    if (usage != nullptr) {
        out +=
            R"({"input_tokens":)" + std::to_string(usage->prompt_tokens) +
            R"(,"input_tokens_details":{"cached_tokens":)" + std::to_string(usage->cached_tokens) +
            R"(,"cache_write_tokens":0},"output_tokens":)" + std::to_string(usage->output_tokens) +
            R"(,"output_tokens_details":{"reasoning_tokens":)" +
            std::to_string(usage->reasoning_tokens) + R"(},"total_tokens":)" +
            std::to_string(usage->prompt_tokens + usage->output_tokens) + '}';
    } else {
        out += "null";
    }
    out += ',';
    out += tail_;
}

}  // namespace server
