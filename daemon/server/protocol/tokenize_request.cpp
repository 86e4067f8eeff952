#include "daemon/server/protocol/tokenize_request.hpp"

#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/tools.hpp"

namespace server {
namespace json = boost::json;
namespace {

using Value = json::value;
using Reader = FieldReader;

bool read_text(const Value& value, TokenizeRequest& request, Reader& reader) {
    return reader.string(value, "prompt", request.text.emplace());
}

bool read_chat(const Value& value, TokenizeRequest& request, Reader& reader) {
    const json::array* list = reader.array(value, "messages");
    if (list == nullptr) return false;
    if (list->empty()) {
        return reader.fail(
            invalid_request("empty_array", "messages", "Invalid 'messages': the array is empty."));
    }
    auto messages = read_messages(*list, reader);
    if (messages) request.messages = std::move(*messages);
    return messages.has_value();
}

bool read_kwargs(const Value& value, TokenizeRequest& request, Reader& reader) {
    const json::object* kwargs = reader.object(value, "chat_template_kwargs");
    if (kwargs != nullptr) request.template_kwargs = *kwargs;
    return kwargs != nullptr;
}

// Names as vLLM has them, and those of llama.cpp's server.
// clang-format off
constexpr Field<TokenizeRequest> kFields[] = {
    {"model",                [](const Value& v, TokenizeRequest& q, Reader& r) { return r.string(v, "model", q.model); }},
    {"prompt",               read_text},
    {"content",              read_text},
    {"messages",             read_chat},
    {"chat_template_kwargs", read_kwargs},
    {"add_special_tokens",   [](const Value& v, TokenizeRequest& q, Reader& r) { return r.boolean(v, "add_special_tokens", q.add_special); }},
    {"add_special",          [](const Value& v, TokenizeRequest& q, Reader& r) { return r.boolean(v, "add_special", q.add_special); }},
    {"parse_special",        [](const Value& v, TokenizeRequest& q, Reader& r) { return r.boolean(v, "parse_special", q.parse_special); }},
    {"return_token_strs",    [](const Value& v, TokenizeRequest& q, Reader& r) { return r.boolean(v, "return_token_strs", q.with_pieces); }},
    {"with_pieces",          [](const Value& v, TokenizeRequest& q, Reader& r) { return r.boolean(v, "with_pieces", q.with_pieces); }},
    {"tools", nullptr},  // read after the loop
};
// clang-format on

bool read_ids(const Value& value, DetokenizeRequest& request, const ParseContext& context,
              Reader& reader) {
    const json::array* list = reader.array(value, "tokens");
    if (list == nullptr) return false;
    request.ids.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
        std::int32_t id = 0;
        if (!reader.integer((*list)[i], indexed("tokens", i), 0, context.vocab_size - 1, id))
            return false;
        request.ids.push_back(id);
    }
    return true;
}

auto unknown_field(const ParseContext& context, Reader& reader) {
    return [&](std::string_view name, const Value&) {
        return !context.strict ||
               reader.fail(invalid_request(
                   "unknown_parameter", excerpt(name, 64),
                   "Unknown parameter: '" + excerpt(name, 64) + "'."));
    };
}

}  // namespace

Parsed<TokenizeRequest> parse_tokenize_request(const json::object& body,
                                               const ParseContext& context) {
    TokenizeRequest request;
    Reader reader;
    base::OutputRules ignored;
    if (!read_fields<TokenizeRequest>(body, kFields, request, reader,
                                      unknown_field(context, reader)) ||
        !read_tools(body, context.reject_hosted_tools, request.functions, ignored, reader))
        return reader.take_error();
    if (!request.text && request.messages.empty()) return missing_parameter("prompt");
    return request;
}

Parsed<DetokenizeRequest> parse_detokenize_request(const json::object& body,
                                                   const ParseContext& context) {
    DetokenizeRequest request;
    Reader reader;
    for (const auto& [key, value] : body) {
        const std::string_view name{key};
        if (value.is_null()) continue;
        if (name == "model") {
            if (!reader.string(value, "model", request.model)) return reader.take_error();
        } else if (name == "tokens") {
            if (!read_ids(value, request, context, reader)) return reader.take_error();
        } else if (!unknown_field(context, reader)(name, value)) {
            return reader.take_error();
        }
    }
    if (!body.contains("tokens") || body.at("tokens").is_null()) return missing_parameter("tokens");
    return request;
}

}  // namespace server
