#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/generation_params.hpp"
#include "daemon/server/session/reply_reader.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// What becomes a chat prompt.
struct ChatInputs {
    /// Responses items, checked; null when `messages` is there.
    std::shared_ptr<const boost::json::array> context;
    boost::json::array messages;  ///< chat messages, normalised
    std::string instructions;
    boost::json::array functions;
    std::string reasoning_effort;
    boost::json::object template_kwargs;
    bool drop_oldest = false;  ///< a context that is too long loses its oldest items
    std::int32_t max_tokens = 0;  ///< of the reply, for which a shortened context leaves room; 0: no limit
    base::OutputRules rules;
    std::string_view form_param;  ///< what the surface calls rules.form: "text.format", …

    /// What they take in memory, roughly.
    [[nodiscard]] std::size_t num_bytes() const;
};

/// A prompt as the model gets it, and what follows from it for the reply.
struct EncodedPrompt {
    std::vector<std::int32_t> ids;
    ReplyShape shape;
    std::shared_ptr<const base::TokenRules> rules;  ///< that the reply follows; null: none
};

/// Renders and tokenizes a conversation, and observes the time of both. A context that is too long is
/// shortened where that is asked for, as little as will do (with room for a reply where possible):
/// that renders it a number of times that grows with the logarithm of its length, and for 10 s at
/// most. Helper thread.
/// @param is_cancelled  asked between renders: nobody waits for the prompt any more
/// @return  an error when the template refuses, the context is too short, or the rules cannot be met
[[nodiscard]] Parsed<EncodedPrompt> encode_chat(const Model& model, metrics::Server& metrics,
                                             const ChatInputs& inputs,
                                             const std::function<bool()>& is_cancelled);

/// The same for a context as it is, however long, and whatever the rules.
[[nodiscard]] Parsed<EncodedPrompt> render_chat(const Model& model, metrics::Server& metrics,
                                                const ChatInputs& inputs);

/// Tokenizes a raw prompt; token ids are taken as they are. Helper thread.
/// @param num_new  tokens to be generated at least: 0 where the prompt is only scored
[[nodiscard]] Parsed<EncodedPrompt> encode_prompt(const Model& model, metrics::Server& metrics,
                                                  const Prompt& prompt, int num_new);

/// The engine's request for a prompt. `id` is given by the dispatcher.
/// @param max_tokens  0 when the prompt is only to be scored
[[nodiscard]] base::Request make_request(const Model& model, const GenerationParams& params,
                                         std::vector<std::int32_t> prompt, std::int32_t max_tokens);

/// When a request that arrived then is over, done or not.
[[nodiscard]] base::Clock::time_point deadline_of(const Core& core,
                                                  base::Clock::time_point received);

/// The tokens that a request without a limit of its own may generate.
[[nodiscard]] std::int32_t default_max_tokens(const Model& model, std::size_t prompt_tokens,
                                              std::int32_t configured);

}  // namespace server
