#include "daemon/server/session/prepare.hpp"

#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/conversation.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

using Ids = std::vector<std::int32_t>;

ApiError encoding_failed(const boost::system::error_code& error, std::string_view param) {
    return invalid_value(param, "The text could not be tokenized: " + error.message() + ".");
}

double seconds(base::Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

json::object template_inputs(const ChatInputs& inputs) {
    json::object out = inputs.template_kwargs;
    out["messages"] = inputs.messages.empty() ? to_messages(inputs.context, inputs.instructions)
                                              : inputs.messages;
    out["tools"] = inputs.functions.empty() ? json::value(nullptr) : json::value(inputs.functions);
    out["add_generation_prompt"] = true;
    if (!inputs.reasoning_effort.empty()) {
        if (!out.contains("reasoning_effort")) out["reasoning_effort"] = inputs.reasoning_effort;
        if (!out.contains("enable_thinking"))
            out["enable_thinking"] = inputs.reasoning_effort != "none";
    }
    return out;
}

}  // namespace

Parsed<Ids> encode_chat(const Model& model, metrics::Server& metrics, ChatInputs inputs) {
    const auto context_length = static_cast<std::size_t>(model.card.context_length);
    for (;;) {
        const auto begin = base::Clock::now();
        const RenderedChat chat = model.codec->render_chat(template_inputs(inputs));
        const auto rendered = base::Clock::now();
        metrics.stage_seconds(metrics::Stage::template_).observe(seconds(rendered - begin));
        if (chat.error) return from_errc(base::Errc::template_failed, chat.text);
        // The codec took the BOS that a template writes: encode() gives each its one.
        auto ids = model.codec->encode_chat(chat);
        metrics.stage_seconds(metrics::Stage::tokenize)
            .observe(seconds(base::Clock::now() - rendered));
        if (!ids) return encoding_failed(ids.error(), "input");
        if (ids->empty()) return invalid_value("input", "The conversation has no token.");
        if (ids->size() < context_length) return std::move(*ids);
        if (!inputs.drop_oldest || !drop_oldest(inputs.context))
            return context_length_exceeded(ids->size(), model.card.context_length, "input");
    }
}

Parsed<Ids> encode_prompt(const Model& model, metrics::Server& metrics, const Prompt& prompt,
                          int num_new) {
    Ids ids;
    if (const auto* given = std::get_if<Ids>(&prompt)) {
        ids = *given;
    } else {
        const auto begin = base::Clock::now();
        auto encoded = model.codec->encode(std::get<std::string>(prompt), true, true);
        metrics.stage_seconds(metrics::Stage::tokenize)
            .observe(seconds(base::Clock::now() - begin));
        if (!encoded) return encoding_failed(encoded.error(), "prompt");
        ids = std::move(*encoded);
    }
    if (ids.empty())
        return invalid_value("prompt", "The prompt is empty and this model has no BOS token.");
    if (ids.size() + static_cast<std::size_t>(num_new) >
        static_cast<std::size_t>(model.card.context_length))
        return context_length_exceeded(ids.size(), model.card.context_length, "prompt");
    return ids;
}

std::int32_t default_max_tokens(const Model& model, std::size_t prompt_tokens,
                                std::int32_t configured) {
    const auto rest = model.card.context_length - static_cast<std::int32_t>(prompt_tokens);
    return configured > 0 ? std::min(configured, rest) : rest;
}

base::Request make_request(const Model& model, const GenerationParams& params, Ids prompt,
                           std::int32_t max_tokens) {
    base::Request request;
    const auto rest = model.card.context_length - static_cast<std::int32_t>(prompt.size());
    request.max_tokens = std::min(max_tokens, rest);
    request.min_tokens = std::min(params.min_tokens, request.max_tokens);
    request.prompt = std::move(prompt);
    request.sampling = params.sampling;
    request.sampling.seed = params.seed ? static_cast<std::uint64_t>(*params.seed) : random_bits();
    request.stop_tokens = params.stop_token_ids;
    if (!params.ignore_eos) {
        const auto eog = model.codec->eog_ids();
        request.stop_tokens.insert(request.stop_tokens.end(), eog.begin(), eog.end());
    }
    std::sort(request.stop_tokens.begin(), request.stop_tokens.end());
    request.stop_tokens.erase(std::unique(request.stop_tokens.begin(), request.stop_tokens.end()),
                              request.stop_tokens.end());
    return request;
}

}  // namespace server
