#include "daemon/server/session/prepare.hpp"

#include "daemon/server/ids.hpp"
#include "daemon/server/protocol/conversation.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
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

/// Binds the reply to what the client demands of it.
/// @return  why that cannot be done, by the name of the field
std::optional<ApiError> bind_reply(const Model& model, const ChatInputs& inputs,
                                   EncodedPrompt& prompt) {
    using Part = grammar::Refusal::Part;
    if (inputs.rules.is_free()) return std::nullopt;
    BoundReply bound =
        model.codec->bind_reply(inputs.rules, {prompt.shape.format, prompt.shape.in_reasoning});
    if (auto* rules = std::get_if<std::shared_ptr<const base::TokenRules>>(&bound)) {
        prompt.rules = std::move(*rules);
        return std::nullopt;
    }
    const auto& refusal = std::get<grammar::Refusal>(bound);
    const std::string form{inputs.form_param};
    switch (refusal.part) {
        case Part::schema:
            return invalid_request("invalid_json_schema",
                                   form + (form == "text.format" ? ".schema" : ".json_schema.schema"),
                                   refusal.message);
        case Part::tool:
            return invalid_request("invalid_json_schema", "tools", refusal.message);
        case Part::model:
            break;
    }
    const bool is_form = inputs.rules.form != base::OutputRules::Form::text;
    const bool is_forced = inputs.rules.calls == base::OutputRules::Calls::required;
    return invalid_request("unsupported_value",
                           is_form ? form + ".type" : is_forced ? "tool_choice" : "tools",
                           refusal.message);
}

constexpr auto kMaxShortening = std::chrono::seconds{10};

json::object template_inputs(const ChatInputs& inputs, const json::array& context) {
    json::object out = inputs.template_kwargs;
    out["messages"] = inputs.context != nullptr ? to_messages(context, inputs.instructions)
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

Parsed<EncodedPrompt> render(const Model& model, metrics::Server& metrics, const ChatInputs& inputs,
                          const json::array& context) {
    const auto begin = base::Clock::now();
    const RenderedChat chat = model.codec->render_chat(template_inputs(inputs, context));
    const auto rendered = base::Clock::now();
    metrics.stage_seconds(metrics::Stage::template_).observe(seconds(rendered - begin));
    if (chat.error) return from_errc(static_cast<base::Errc>(chat.error.value()), chat.text);
    // The codec took the BOS that a template writes: encode() gives each its one.
    auto ids = model.codec->encode_chat(chat);
    metrics.stage_seconds(metrics::Stage::tokenize).observe(seconds(base::Clock::now() - rendered));
    if (!ids) return encoding_failed(ids.error(), "input");
    if (ids->empty()) return invalid_value("input", "The conversation has no token.");
    return EncodedPrompt{std::move(*ids), {chat.format, chat.in_reasoning}};
}

/// Tokens that a shortened context leaves to the reply: what the request allows it, or an eighth of
/// the context; half of it at most.
std::size_t room_for_reply(const ChatInputs& inputs, std::size_t context_length) {
    const auto wanted =
        inputs.max_tokens > 0 ? static_cast<std::size_t>(inputs.max_tokens) : context_length / 8;
    return std::min(wanted, context_length / 2);
}

/// The longest of the shortened contexts that fits, found by halving.
Parsed<EncodedPrompt> shorten(const Model& model, metrics::Server& metrics, const ChatInputs& inputs,
                           ApiError too_long, const std::function<bool()>& is_cancelled) {
    const Truncation truncation{*inputs.context};
    const auto until = base::Clock::now() + kMaxShortening;
    const auto context_length = static_cast<std::size_t>(model.card.context_length);
    const std::size_t room = room_for_reply(inputs, context_length);
    Parsed<EncodedPrompt> best = std::move(too_long);
    // Everything below `low` is too long; `best` is what `high` gives, where that was tried.
    for (std::size_t low = 0, high = truncation.num_choices(); low < high;) {
        if (is_cancelled()) return from_errc(base::Errc::cancelled);
        if (base::Clock::now() > until) return from_errc(base::Errc::deadline);
        const std::size_t middle = low + (high - low) / 2;
        auto prompt = render(model, metrics, inputs, truncation.shortened(middle));
        if (!prompt) return prompt.error();
        const std::size_t size = prompt->ids.size();
        const bool is_shortest = middle + 1 == truncation.num_choices();
        if (size + room <= context_length || (is_shortest && size < context_length))
            best = std::move(prompt);
        if (size + room <= context_length)
            high = middle;
        else
            low = middle + 1;
    }
    return best;
}

}  // namespace

std::size_t ChatInputs::num_bytes() const {
    return memory_of(messages) + memory_of(functions) + memory_of(template_kwargs) +
           instructions.size() + (context != nullptr ? memory_of(*context) : 0);
}

Parsed<EncodedPrompt> render_chat(const Model& model, metrics::Server& metrics,
                                  const ChatInputs& inputs) {
    static const json::array none;
    return render(model, metrics, inputs, inputs.context != nullptr ? *inputs.context : none);
}

Parsed<EncodedPrompt> encode_chat(const Model& model, metrics::Server& metrics,
                               const ChatInputs& inputs,
                               const std::function<bool()>& is_cancelled) {
    if (is_cancelled()) return from_errc(base::Errc::cancelled);
    auto prompt = render_chat(model, metrics, inputs);
    if (!prompt) return prompt;
    if (auto refusal = bind_reply(model, inputs, *prompt)) return std::move(*refusal);
    const auto context_length = static_cast<std::size_t>(model.card.context_length);
    if (prompt->ids.size() < context_length) return prompt;
    ApiError too_long =
        context_length_exceeded(prompt->ids.size(), model.card.context_length, "input");
    if (!inputs.drop_oldest || inputs.context == nullptr) return too_long;
    auto shorter = shorten(model, metrics, inputs, std::move(too_long), is_cancelled);
    if (shorter) shorter->rules = std::move(prompt->rules);
    return shorter;
}

Parsed<EncodedPrompt> encode_prompt(const Model& model, metrics::Server& metrics,
                                    const Prompt& prompt, int num_new) {
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
    return EncodedPrompt{std::move(ids), {}};
}

base::Clock::time_point deadline_of(const Core& core, base::Clock::time_point received) {
    const milliseconds timeout = core.options.limits.request_timeout;
    return timeout.count() > 0 ? received + timeout : base::Clock::time_point::max();
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
