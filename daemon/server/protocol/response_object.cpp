#include "daemon/server/protocol/response_object.hpp"

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
    out["store"] = request.store;
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

std::string usage_object(const Usage& usage) {
    return R"({"input_tokens":)" + std::to_string(usage.prompt_tokens) +
           R"(,"input_tokens_details":{"cached_tokens":)" + std::to_string(usage.cached_tokens) +
           R"(,"cache_write_tokens":0},"output_tokens":)" + std::to_string(usage.output_tokens) +
           R"(,"output_tokens_details":{"reasoning_tokens":)" +
           std::to_string(usage.reasoning_tokens) + R"(},"total_tokens":)" +
           std::to_string(usage.prompt_tokens + usage.output_tokens) + '}';
}

}  // namespace

ResponseObject::ResponseObject(const ResponseRequest& request, std::string id,
                               std::string_view fingerprint, std::int64_t created_at)
    : id_{std::move(id)} {
    head_ = R"({"id":")" + id_ + R"(","object":"response","created_at":)" +
            std::to_string(created_at) + R"(,"status":")";
    json::object fixed = static_fields(request, fingerprint);
    tail_ = json::serialize(fixed);
    if (tail_.size() > kMaxEchoBytes) {
        fixed["instructions"] = nullptr;
        fixed["tools"] = json::array{};
        tail_ = json::serialize(fixed);
    }
    tail_.erase(0, 1);
}

std::string ResponseObject::in_progress() const {
    return head_ +
           R"(in_progress","completed_at":null,"error":null,"incomplete_details":null,"output":[],)" +
           R"("usage":null,)" + tail_;
}

std::string ResponseObject::ended(ResponseEnd end, std::string_view output, const Usage& usage,
                                  const ApiError* error, std::int64_t completed_at) const {
    constexpr std::string_view kStatus[] = {"completed", "incomplete", "cancelled", "failed"};
    std::string out = head_;
    out.reserve(out.size() + output.size() + tail_.size() + 512);
    out += kStatus[static_cast<std::size_t>(end)];
    out += R"(","completed_at":)";
    out += end == ResponseEnd::completed ? std::to_string(completed_at) : "null";
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
    out += end == ResponseEnd::incomplete ? R"({"reason":"max_output_tokens"})" : "null";
    out += R"(,"output":[)";
    out += output;
    out += R"(],"usage":)" + usage_object(usage) + ',';
    out += tail_;
    return out;
}

}  // namespace server
