// Any bytes at all as a client's message: either a request within its ranges, or an error that can
// be sent as JSON.

#include "daemon/base/check.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/protocol/response_request.hpp"

#include <boost/json/parse.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

using namespace server;

constexpr std::int32_t kVocabulary = 1000;

void check_error(const ApiError& error) {
    CHECK(error.status >= 400 && error.status < 600 && !error.message.empty());
    for (const std::string& text : {error_body(error), error_event(error, "s1")}) {
        boost::system::error_code ec;
        CHECK(boost::json::parse(text, ec).is_object() && !ec);
    }
}

void check_params(const GenerationParams& params) {
    CHECK(params.max_tokens >= 0 && params.min_tokens >= 0);
    CHECK(params.sampling.temperature >= 0.0F && params.sampling.top_p >= 0.0F &&
          params.sampling.top_p <= 1.0F);
    for (const std::int32_t id : params.stop_token_ids) CHECK(id >= 0 && id < kVocabulary);
}

void check_message(const boost::json::object& message, const ParseContext& context) {
    if (const auto response = parse_response_request(message, context)) {
        check_params(response->params);
        CHECK(response->stream_id.empty() || is_stream_id(response->stream_id));
        CHECK(response->top_logprobs >= 0 && response->top_logprobs <= 20);
    } else {
        check_error(response.error());
    }
    if (const auto completion = parse_completion_request(message, context)) {
        check_params(completion->params);
        CHECK(!completion->prompts.empty() && completion->prompts.size() <= context.max_prompts);
        CHECK(completion->n >= 1 && completion->n <= context.max_choices);
        for (const Prompt& prompt : completion->prompts)
            if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt))
                for (const std::int32_t id : *ids) CHECK(id >= 0 && id < kVocabulary);
    } else {
        check_error(completion.error());
    }
    if (const auto chat = parse_chat_request(message, context)) {
        check_params(chat->params);
        CHECK(chat->n >= 1 && chat->n <= context.max_choices);
    } else {
        check_error(chat.error());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const auto message = parse_object(text, size % 2 != 0);
    if (!message) {
        check_error(message.error());
        return 0;
    }
    check_message(*message, {.vocab_size = kVocabulary});
    check_message(
        *message,
        {.vocab_size = kVocabulary, .strict = true, .reject_hosted_tools = true, .is_http = true});
    return 0;
}
