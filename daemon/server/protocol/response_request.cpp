#include "daemon/server/protocol/response_request.hpp"

#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/output_form.hpp"
#include "daemon/server/protocol/tools.hpp"

#include <algorithm>

namespace server {
namespace json = boost::json;
namespace {

using Value = json::value;
using Reader = FieldReader;
using Request = ResponseRequest;

constexpr std::string_view kIncludes[] = {"message.output_text.logprobs",
                                          "reasoning.encrypted_content",
                                          "file_search_call.results",
                                          "web_search_call.results",
                                          "web_search_call.action.sources",
                                          "message.input_image.image_url",
                                          "computer_call_output.output.image_url",
                                          "code_interpreter_call.outputs"};
constexpr std::string_view kTruncations[] = {"auto", "disabled"};
constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};
constexpr std::string_view kSummaries[] = {"auto", "concise", "detailed"};
constexpr std::string_view kVerbosities[] = {"low", "medium", "high"};
constexpr std::size_t kMaxMetadata = 16;
constexpr std::size_t kMaxMetadataBytes = 512 * 4;  // 512 characters

bool read_input(const Value& value, Request& request, Reader& reader) {
    if (value.is_string()) {
        request.input =
            json::array{json::object{{"type", "message"}, {"role", "user"}, {"content", value}}};
        return true;
    }
    if (!value.is_array()) return reader.fail(wrong_type("input", "a string or an array"));
    if (!check_items(value.get_array(), "input", reader)) return false;
    request.input = value.get_array();
    return true;
}

bool read_include(const Value& value, Request& request, Reader& reader) {
    const json::array* list = reader.array(value, "include");
    if (list == nullptr) return false;
    for (std::size_t i = 0; i < list->size(); ++i) {
        std::string word;
        if (!reader.word((*list)[i], indexed("include", i), kIncludes, word)) return false;
        if (word == kIncludes[0]) request.want_logprobs = true;
    }
    return true;
}

bool read_metadata(const Value& value, Request& request, Reader& reader) {
    const json::object* pairs = reader.object(value, "metadata");
    if (pairs == nullptr) return false;
    if (pairs->size() > kMaxMetadata) {
        return reader.fail(invalid_request("object_above_max_properties", "metadata",
                                           "Invalid 'metadata': at most 16 pairs."));
    }
    for (const auto& [key, text] : *pairs) {
        if (key.size() > 64) {
            return reader.fail(invalid_request("string_above_max_length", "metadata",
                                               "Invalid 'metadata': keys have at most 64 bytes."));
        }
        std::string ignored;
        if (!reader.string(text, "metadata." + std::string{key}, ignored, kMaxMetadataBytes))
            return false;
    }
    request.echo["metadata"] = *pairs;
    return true;
}

bool read_text(const Value& value, Request& request, Reader& reader) {
    const json::object* text = reader.object(value, "text");
    if (text == nullptr) return false;
    json::object echo{{"format", json::object{{"type", "text"}}}, {"verbosity", "medium"}};
    if (const Value* format = text->if_contains("format"); format && !format->is_null()) {
        if (!read_output_form(*format, "text.format", false, request.rules, reader)) return false;
        echo["format"] = *format;
    }
    if (const Value* verbosity = text->if_contains("verbosity");
        verbosity && !verbosity->is_null()) {
        std::string word;
        if (!reader.word(*verbosity, "text.verbosity", kVerbosities, word)) return false;
        echo["verbosity"] = word;
    }
    request.echo["text"] = std::move(echo);
    return true;
}

bool read_reasoning(const Value& value, Request& request, Reader& reader) {
    const json::object* body = reader.object(value, "reasoning");
    if (body == nullptr) return false;
    json::object echo{{"effort", nullptr}, {"summary", nullptr}};
    if (const Value* effort = body->if_contains("effort"); effort && !effort->is_null()) {
        if (!reader.word(*effort, "reasoning.effort", kEfforts, request.reasoning_effort))
            return false;
        echo["effort"] = request.reasoning_effort;
    }
    if (const Value* summary = body->if_contains("summary"); summary && !summary->is_null()) {
        std::string word;
        if (!reader.word(*summary, "reasoning.summary", kSummaries, word)) return false;
        request.want_summary = true;
        echo["summary"] = word;
    }
    request.echo["reasoning"] = std::move(echo);
    return true;
}

bool read_truncation(const Value& value, Request& request, Reader& reader) {
    std::string word;
    if (!reader.word(value, "truncation", kTruncations, word)) return false;
    request.drop_oldest = word == "auto";
    request.echo["truncation"] = word;
    return true;
}

bool read_background(const Value& value, Request&, Reader& reader) {
    bool on = false;
    if (!reader.boolean(value, "background", on)) return false;
    return !on || reader.fail(invalid_request("unsupported_parameter", "background",
                                              "Background responses are not supported."));
}

template <const char* name>
bool refuse(const Value&, Request&, Reader& reader) {
    return reader.fail(invalid_request("unsupported_parameter", name,
                                       "'" + std::string{name} + "' is not supported."));
}
constexpr char kConversation[] = "conversation";
constexpr char kPrompt[] = "prompt";

template <const char* name>
bool echo_string(const Value& value, Request& request, Reader& reader) {
    std::string text;
    if (!reader.string(value, name, text, 4096)) return false;
    request.echo[name] = text;
    return true;
}
constexpr char kUser[] = "user";
constexpr char kSafety[] = "safety_identifier";
constexpr char kCacheKey[] = "prompt_cache_key";

bool read_instructions(const Value& value, Request& request, Reader& reader) {
    if (!reader.string(value, "instructions", request.instructions)) return false;
    request.echo["instructions"] = request.instructions;
    return true;
}

bool read_max_output_tokens(const Value& value, Request& request, Reader& reader) {
    if (!reader.integer(value, "max_output_tokens", 1, std::numeric_limits<std::int32_t>::max(),
                        request.params.max_tokens))
        return false;
    request.echo["max_output_tokens"] = request.params.max_tokens;
    return true;
}

bool read_max_tool_calls(const Value& value, Request& request, Reader& reader) {
    std::int32_t n = 0;
    if (!reader.integer(value, "max_tool_calls", 0, std::numeric_limits<std::int32_t>::max(), n))
        return false;
    request.echo["max_tool_calls"] = n;
    return true;
}

bool read_parallel(const Value& value, Request& request, Reader& reader) {
    bool& on = request.rules.parallel_calls;
    if (!reader.boolean(value, "parallel_tool_calls", on)) return false;
    request.echo["parallel_tool_calls"] = on;
    return true;
}

bool read_previous(const Value& value, Request& request, Reader& reader) {
    return reader.string(value, "previous_response_id", request.previous_response_id, 512);
}

// Lane and tools are read before and after the loop; here they only have to be known.
// clang-format off
constexpr Field<Request> kFields[] = {
    {"type", nullptr}, {"stream_id", nullptr}, {"tools", nullptr}, {"tool_choice", nullptr},
    {"model",                [](const Value& v, Request& q, Reader& r) { return r.string(v, "model", q.model); }},
    {"input",                read_input},
    {"instructions",         read_instructions},
    {"previous_response_id", read_previous},
    {"store",                [](const Value& v, Request& q, Reader& r) { return r.boolean(v, "store", q.store); }},
    {"generate",             [](const Value& v, Request& q, Reader& r) { return r.boolean(v, "generate", q.generate); }},
    {"stream",               [](const Value& v, Request& q, Reader& r) { return r.boolean(v, "stream", q.stream); }},
    {"max_output_tokens",    read_max_output_tokens},
    {"top_logprobs",         [](const Value& v, Request& q, Reader& r) { return r.integer(v, "top_logprobs", 0, 20, q.top_logprobs); }},
    {"include",              read_include},
    {"text",                 read_text},
    {"parallel_tool_calls",  read_parallel},
    {"max_tool_calls",       read_max_tool_calls},
    {"reasoning",            read_reasoning},
    {"truncation",           read_truncation},
    {"metadata",             read_metadata},
    {"background",           read_background},
    {"conversation",         refuse<kConversation>},
    {"prompt",               refuse<kPrompt>},
    {"user",                 echo_string<kUser>},
    {"safety_identifier",    echo_string<kSafety>},
    {"prompt_cache_key",     echo_string<kCacheKey>},
    // Accepted and ignored.
    {"prompt_cache_retention", nullptr}, {"prompt_cache_options", nullptr}, {"service_tier", nullptr},
    {"stream_options", nullptr}, {"context_management", nullptr}, {"moderation", nullptr},
    {"image", nullptr}, {"access_programs", nullptr}, {"background_options", nullptr},
    {"client_metadata", nullptr},
};
// clang-format on

const Value* given(const json::object& message, std::string_view key) {
    const Value* value = message.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
}

/// Lane and the fields that only one of the transports has.
bool read_envelope(const json::object& message, const ParseContext& context, Request& request,
                   Reader& reader) {
    const Value* stream_id = given(message, "stream_id");
    if (context.is_http) {
        for (const char* name : {"stream_id", "generate"}) {
            if (given(message, name) != nullptr)
                return reader.fail(invalid_request(
                    "unknown_parameter", name, std::string{"Unknown parameter: '"} + name + "'."));
        }
        return true;
    }
    if (stream_id == nullptr) return true;
    if (!stream_id->is_string() || !is_stream_id(stream_id->get_string())) {
        return reader.fail(
            invalid_request("invalid_stream_id", "stream_id",
                            "stream_id must be 1 to 256 characters from A-Z a-z 0-9 _ - ."));
    }
    request.stream_id = stream_id->get_string();
    return true;
}

bool read_tool_fields(const json::object& message, const ParseContext& context, Request& request,
                      Reader& reader) {
    if (!read_tools(message, context.reject_hosted_tools, request.functions, request.rules, reader))
        return false;
    for (const char* name : {"tools", "tool_choice"})
        if (const Value* value = given(message, name)) request.echo[name] = *value;
    return true;
}

bool check_required(const Request& request, Reader& reader) {
    if (request.model.empty()) return reader.fail(missing_parameter("model"));
    if (!request.generate || !request.previous_response_id.empty()) return true;
    if (!request.input) return reader.fail(missing_parameter("input"));
    if (request.input->empty()) {
        return reader.fail(
            invalid_request("empty_array", "input", "Invalid 'input': the array is empty."));
    }
    return true;
}

}  // namespace

bool is_stream_id(std::string_view text) {
    return !text.empty() && text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-' || c == '.';
    });
}

Parsed<ResponseRequest> parse_response_request(const json::object& message,
                                               const ParseContext& context) {
    Request request;
    request.params.sampling = context.sampling;
    request.store = true;
    Reader reader;
    const auto unknown = [&](std::string_view name, const Value& value) {
        if (read_generation_param(name, value, context.vocab_size, request.params, reader))
            return !reader.failed();
        return !context.strict ||
               reader.fail(invalid_request(
                   "unknown_parameter", excerpt(name, 64),
                   "Unknown parameter: '" + excerpt(name, 64) + "'."));
    };
    const bool is_fine = read_envelope(message, context, request, reader) &&
                         read_fields<Request>(message, kFields, request, reader, unknown) &&
                         read_tool_fields(message, context, request, reader) &&
                         check_required(request, reader) &&
                         check_generation_params(request.params, reader);
    if (!is_fine) return reader.take_error();
    request.store = request.store && context.has_store;
    return request;
}

}  // namespace server
