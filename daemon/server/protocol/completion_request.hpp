#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/server/protocol/generation_params.hpp"
#include "daemon/server/protocol/response_request.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace server {

/// A prompt of /v1/completions: text, or token ids that bypass the tokenizer.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

/// A checked body of POST /v1/completions.
struct CompletionRequest {
    std::string model;
    std::vector<Prompt> prompts;     ///< at least one
    GenerationParams params;         ///< max_tokens 0: only score the prompt
    std::int32_t n = 1;              ///< choices for each prompt
    std::int32_t num_logprobs = -1;  ///< -1: none asked for
    std::int32_t num_prompt_logprobs = -1;  ///< of `prompt_logprobs`; -1: none asked for
    bool echo = false;
    bool stream = false;
    bool include_usage = false;
    bool return_token_ids = false;
};

[[nodiscard]] Parsed<CompletionRequest> parse_completion_request(const boost::json::object& body,
                                                                 const ParseContext& context);

/// A checked body of POST /v1/chat/completions.
struct ChatRequest {
    std::string model;
    boost::json::array messages;   ///< normalised for the template (read_messages)
    boost::json::array functions;  ///< those that may be called, as templates take them
    base::OutputRules rules;
    std::string reasoning_effort;
    boost::json::object template_kwargs;  ///< chat_template_kwargs
    GenerationParams params;
    std::int32_t n = 1;
    bool logprobs = false;
    std::int32_t top_logprobs = 0;
    bool stream = false;
    bool include_usage = false;
};

[[nodiscard]] Parsed<ChatRequest> parse_chat_request(const boost::json::object& body,
                                                     const ParseContext& context);

}  // namespace server
