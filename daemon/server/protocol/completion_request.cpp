#include "daemon/server/protocol/completion_request.hpp"

#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/output_form.hpp"
#include "daemon/server/protocol/tools.hpp"

#include <limits>

namespace server {
namespace json = boost::json;
namespace {

using Value = json::value;
using Reader = FieldReader;
constexpr std::int32_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxPromptTokens = std::size_t{4} << 20U;

bool read_stream_options(const Value& value, bool& include_usage, Reader& reader) {
    const json::object* options = reader.object(value, "stream_options");
    if (options == nullptr) return false;
    const Value* usage = options->if_contains("include_usage");
    return usage == nullptr || usage->is_null() ||
           reader.boolean(*usage, "stream_options.include_usage", include_usage);
}

ApiError unsupported(std::string_view name) {
    return invalid_request("unsupported_parameter", name,
                           "'" + std::string{name} + "' is not supported.");
}

/// The rule for names that no table of the surface has.
auto unknown_field(GenerationParams& params, const ParseContext& context, Reader& reader) {
    return [&](std::string_view name, const Value& value) {
        if (read_generation_param(name, value, context.vocab_size, params, reader))
            return !reader.failed();
        return !context.strict ||
               reader.fail(invalid_request(
                   "unknown_parameter", excerpt(name, 64),
                   "Unknown parameter: '" + excerpt(name, 64) + "'."));
    };
}

// ---- /v1/completions ---------------------------------------------------------------------------

struct CompletionTarget {
    CompletionRequest& request;
    const ParseContext& context;
    std::int32_t max_tokens = 16;
    std::int32_t best_of = 0;  // 0: not given
};
using Ct = CompletionTarget;

bool read_ids(const json::array& list, std::int32_t vocab_size, std::vector<std::int32_t>& ids,
              Reader& reader) {
    if (list.size() > kMaxPromptTokens) {
        return reader.fail(invalid_request("array_above_max_length", "prompt",
                                           "Invalid 'prompt': too many tokens."));
    }
    ids.reserve(list.size());
    for (const Value& value : list) {
        if (!value.is_int64()) return reader.fail(wrong_type("prompt", "integers as token ids"));
        const std::int64_t id = value.get_int64();
        if (id < 0 || id >= vocab_size)
            return reader.fail(invalid_value(
                "prompt",
                "Invalid 'prompt': token id " + std::to_string(id) + " is out of range."));
        ids.push_back(static_cast<std::int32_t>(id));
    }
    return true;
}

bool read_prompt(const Value& value, Ct& t, Reader& reader) {
    std::vector<Prompt>& prompts = t.request.prompts;
    std::string text;
    if (value.is_string()) {
        if (!reader.string(value, "prompt", text)) return false;
        prompts.emplace_back(std::move(text));
        return true;
    }
    if (!value.is_array()) {
        return reader.fail(wrong_type(
            "prompt", "a string, an array of strings, an array of token ids or an array of those"));
    }
    const json::array* list = &value.get_array();
    if (list->empty())
        return reader.fail(
            invalid_request("empty_array", "prompt", "Invalid 'prompt': the array is empty."));
    if (list->front().is_number()) {  // one prompt of ids
        std::vector<std::int32_t> ids;
        if (!read_ids(*list, t.context.vocab_size, ids, reader)) return false;
        prompts.emplace_back(std::move(ids));
        return true;
    }
    if (list->size() > t.context.max_prompts) {
        return reader.fail(invalid_request("array_above_max_length", "prompt",
                                           "Invalid 'prompt': at most " +
                                               std::to_string(t.context.max_prompts) +
                                               " prompts in one request."));
    }
    for (const Value& item : *list) {
        if (item.is_string()) {
            if (!reader.string(item, "prompt", text)) return false;
            prompts.emplace_back(text);
        } else if (item.is_array()) {
            std::vector<std::int32_t> ids;
            if (item.get_array().empty())
                return reader.fail(invalid_request("empty_array", "prompt",
                                                   "Invalid 'prompt': a prompt has no token."));
            if (!read_ids(item.get_array(), t.context.vocab_size, ids, reader)) return false;
            prompts.emplace_back(std::move(ids));
        } else {
            return reader.fail(wrong_type("prompt", "strings or arrays of token ids"));
        }
    }
    return true;
}

bool read_suffix(const Value& value, Ct&, Reader& reader) {
    return (value.is_string() && value.get_string().empty()) || reader.fail(unsupported("suffix"));
}

// clang-format off
constexpr Field<Ct> kCompletionFields[] = {
    {"model",            [](const Value& v, Ct& t, Reader& r) { return r.string(v, "model", t.request.model); }},
    {"prompt",           read_prompt},
    {"max_tokens",       [](const Value& v, Ct& t, Reader& r) { return r.integer(v, "max_tokens", 0, kMaxInt, t.max_tokens); }},
    {"n",                [](const Value& v, Ct& t, Reader& r) { return r.integer(v, "n", 1, t.context.max_choices, t.request.n); }},
    {"best_of",          [](const Value& v, Ct& t, Reader& r) { return r.integer(v, "best_of", 1, kMaxInt, t.best_of); }},
    {"logprobs",         [](const Value& v, Ct& t, Reader& r) { return r.integer(v, "logprobs", 0, 20, t.request.num_logprobs); }},
    {"echo",             [](const Value& v, Ct& t, Reader& r) { return r.boolean(v, "echo", t.request.echo); }},
    {"stream",           [](const Value& v, Ct& t, Reader& r) { return r.boolean(v, "stream", t.request.stream); }},
    {"stream_options",   [](const Value& v, Ct& t, Reader& r) { return read_stream_options(v, t.request.include_usage, r); }},
    {"prompt_logprobs",  [](const Value& v, Ct& t, Reader& r) { return r.integer(v, "prompt_logprobs", 0, 20, t.request.num_prompt_logprobs); }},
    {"return_token_ids", [](const Value& v, Ct& t, Reader& r) { return r.boolean(v, "return_token_ids", t.request.return_token_ids); }},
    {"suffix",           read_suffix},
    {"user",             nullptr},
};
// clang-format on

// ---- /v1/chat/completions ----------------------------------------------------------------------

struct ChatTarget {
    ChatRequest& request;
    const ParseContext& context;
    std::int32_t max_tokens = 0;
    std::int32_t max_completion_tokens = 0;
};
using Cht = ChatTarget;

bool read_chat_messages(const Value& value, Cht& t, Reader& reader) {
    const json::array* list = reader.array(value, "messages");
    if (list == nullptr) return false;
    if (list->empty())
        return reader.fail(
            invalid_request("empty_array", "messages", "Invalid 'messages': the array is empty."));
    auto messages = read_messages(*list, reader);
    if (!messages) return false;
    t.request.messages = std::move(*messages);
    return true;
}

bool read_response_format(const Value& value, Cht& t, Reader& reader) {
    return read_output_form(value, "response_format", true, t.request.rules, reader);
}

bool read_effort(const Value& value, Cht& t, Reader& reader) {
    constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                             "high", "xhigh",   "max"};
    return reader.word(value, "reasoning_effort", kEfforts, t.request.reasoning_effort);
}

bool read_template_kwargs(const Value& value, Cht& t, Reader& reader) {
    const json::object* kwargs = reader.object(value, "chat_template_kwargs");
    if (kwargs != nullptr) t.request.template_kwargs = *kwargs;
    return kwargs != nullptr;
}

// clang-format off
constexpr Field<Cht> kChatFields[] = {
    {"tools", nullptr}, {"tool_choice", nullptr},  // read after the loop
    {"model",                 [](const Value& v, Cht& t, Reader& r) { return r.string(v, "model", t.request.model); }},
    {"messages",              read_chat_messages},
    {"max_tokens",            [](const Value& v, Cht& t, Reader& r) { return r.integer(v, "max_tokens", 1, kMaxInt, t.max_tokens); }},
    {"max_completion_tokens", [](const Value& v, Cht& t, Reader& r) { return r.integer(v, "max_completion_tokens", 1, kMaxInt, t.max_completion_tokens); }},
    {"n",                     [](const Value& v, Cht& t, Reader& r) { return r.integer(v, "n", 1, t.context.max_choices, t.request.n); }},
    {"logprobs",              [](const Value& v, Cht& t, Reader& r) { return r.boolean(v, "logprobs", t.request.logprobs); }},
    {"top_logprobs",          [](const Value& v, Cht& t, Reader& r) { return r.integer(v, "top_logprobs", 0, 20, t.request.top_logprobs); }},
    {"stream",                [](const Value& v, Cht& t, Reader& r) { return r.boolean(v, "stream", t.request.stream); }},
    {"stream_options",        [](const Value& v, Cht& t, Reader& r) { return read_stream_options(v, t.request.include_usage, r); }},
    {"response_format",       read_response_format},
    {"reasoning_effort",      read_effort},
    {"chat_template_kwargs",  read_template_kwargs},
    {"parallel_tool_calls",   [](const Value& v, Cht& t, Reader& r) { return r.boolean(v, "parallel_tool_calls", t.request.rules.parallel_calls); }},
    // Accepted and ignored.
    {"user", nullptr}, {"store", nullptr}, {"metadata", nullptr},
    {"service_tier", nullptr}, {"prompt_cache_key", nullptr}, {"safety_identifier", nullptr},
    {"verbosity", nullptr}, {"modalities", nullptr}, {"prediction", nullptr},
};
// clang-format on

}  // namespace

Parsed<CompletionRequest> parse_completion_request(const json::object& body,
                                                   const ParseContext& context) {
    CompletionRequest request;
    request.params.sampling = context.sampling;
    Reader reader;
    Ct target{request, context};
    if (!read_fields<Ct>(body, kCompletionFields, target, reader,
                         unknown_field(request.params, context, reader)))
        return reader.take_error();
    if (request.model.empty()) return missing_parameter("model");
    if (request.prompts.empty()) return missing_parameter("prompt");
    if (target.best_of != 0 && target.best_of != request.n) return unsupported("best_of");
    if (target.max_tokens == 0 && !request.echo)
        return invalid_request("integer_below_min_value", "max_tokens",
                               "Invalid 'max_tokens': 0 needs 'echo'.");
    request.params.max_tokens = target.max_tokens;
    if (target.max_tokens == 0) request.params.min_tokens = 0;
    if (request.stream && request.num_prompt_logprobs >= 0) {
        return invalid_request("unsupported_value", "prompt_logprobs",
                               "'prompt_logprobs' is not available in a stream.");
    }
    if (!check_generation_params(request.params, reader)) return reader.take_error();
    return request;
}

Parsed<ChatRequest> parse_chat_request(const json::object& body, const ParseContext& context) {
    ChatRequest request;
    request.params.sampling = context.sampling;
    Reader reader;
    Cht target{request, context};
    if (!read_fields<Cht>(body, kChatFields, target, reader,
                          unknown_field(request.params, context, reader)))
        return reader.take_error();
    if (!read_tools(body, context.reject_hosted_tools, request.functions, request.rules, reader))
        return reader.take_error();
    if (request.model.empty()) return missing_parameter("model");
    if (request.messages.empty()) return missing_parameter("messages");
    request.params.max_tokens =
        target.max_completion_tokens != 0 ? target.max_completion_tokens : target.max_tokens;
    if (!check_generation_params(request.params, reader)) return reader.take_error();
    return request;
}

}  // namespace server
