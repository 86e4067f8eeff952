#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/server/protocol/generation_params.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace server {

/// What a parser must know besides the message.
struct ParseContext {
    std::int32_t vocab_size = 0;
    bool strict = false;  ///< unknown fields are refused
    bool reject_hosted_tools = false;
    bool is_http = false;  ///< no type, stream_id, generate; stream counts
    bool has_store = false;  ///< responses can outlive their connection
    std::int32_t max_choices = 8;
    std::size_t max_prompts = 64;
    base::Sampling sampling;  ///< for the fields that a request leaves out
};

/// A checked `response.create`, or the body of POST /v1/responses.
struct ResponseRequest {
    std::string model;
    std::optional<boost::json::array> input;  ///< items; a string became one user message
    std::string instructions;
    std::string previous_response_id;
    std::string stream_id;  ///< "": the default lane
    bool store = false;  ///< the response outlives its connection: asked for, and possible
    bool generate = true;
    bool stream = false;  ///< HTTP only
    GenerationParams params;
    std::int32_t top_logprobs = 0;
    bool want_logprobs = false;    ///< include: message.output_text.logprobs
    boost::json::array functions;  ///< those that may be called, as templates take them
    base::OutputRules rules;
    bool drop_oldest = false;  ///< truncation: auto
    std::string reasoning_effort;
    bool want_summary = false;  ///< reasoning.summary: reasoning is told as a summary
    /// What goes back in the response object as it came: instructions, metadata, tools, …
    boost::json::object echo;
};

/// @param message  an object of type response.create, or an HTTP body
[[nodiscard]] Parsed<ResponseRequest> parse_response_request(const boost::json::object& message,
                                                             const ParseContext& context);

/// 1 to 256 of A-Z a-z 0-9 _ - .
[[nodiscard]] bool is_stream_id(std::string_view text);

}  // namespace server
