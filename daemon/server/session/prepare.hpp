#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/generation_params.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// What becomes a chat prompt.
struct ChatInputs {
    boost::json::array context;   ///< Responses items; unused when `messages` is there
    boost::json::array messages;  ///< chat messages, normalised
    std::string instructions;
    boost::json::array functions;
    std::string reasoning_effort;
    boost::json::object template_kwargs;
    bool drop_oldest = false;  ///< a context that is too long loses its oldest items
};

/// Renders and tokenizes a conversation, and observes the time of both. Helper thread.
/// @return  [num_tokens]; an error when the template refuses or the context is too short
[[nodiscard]] Parsed<std::vector<std::int32_t>> encode_chat(const Model& model,
                                                            metrics::Server& metrics,
                                                            ChatInputs inputs);

/// Tokenizes a raw prompt; token ids are taken as they are. Helper thread.
/// @param num_new  tokens to be generated at least: 0 where the prompt is only scored
[[nodiscard]] Parsed<std::vector<std::int32_t>> encode_prompt(const Model& model,
                                                              metrics::Server& metrics,
                                                              const Prompt& prompt, int num_new);

/// The engine's request for a prompt. `id` is given by the dispatcher.
/// @param max_tokens  0 when the prompt is only to be scored
[[nodiscard]] base::Request make_request(const Model& model, const GenerationParams& params,
                                         std::vector<std::int32_t> prompt, std::int32_t max_tokens);

/// The tokens that a request without a limit of its own may generate.
[[nodiscard]] std::int32_t default_max_tokens(const Model& model, std::size_t prompt_tokens,
                                              std::int32_t configured);

}  // namespace server
