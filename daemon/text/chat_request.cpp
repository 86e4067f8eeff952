#include "daemon/text/chat_request.hpp"

#include <boost/json.hpp>

#include <cstdint>
#include <string>

namespace text {

namespace json = boost::json;

namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kToolTemplateKey = "tokenizer.chat_template.tool_use";

// What a model without a template most likely expects.
constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The text of one content part, or nullptr when it is no text.
const json::string* text_of_part(const json::value& part) {
    if (part.is_string()) return &part.get_string();
    if (!part.is_object()) return nullptr;
    const json::value* text = part.get_object().if_contains("text");
    return text != nullptr && text->is_string() ? &text->get_string() : nullptr;
}

/// The parts' texts joined; false when one of them is no text.
bool join_parts(const json::array& parts, json::string& out) {
    for (const json::value& part : parts) {
        const json::string* text = text_of_part(part);
        if (text == nullptr) return false;
        out.append(*text);
    }
    return true;
}

void adapt_content(json::object& message, const TemplateTraits& traits) {
    const json::value* calls = message.if_contains("tool_calls");
    const bool has_calls = calls != nullptr && calls->is_array() && !calls->get_array().empty();
    json::value& content = message["content"];
    if (content.is_null()) content = "";
    if (content.is_array() && !traits.content_parts) {
        json::string joined;
        if (join_parts(content.get_array(), joined)) content = std::move(joined);
    }
    const bool is_empty = content.is_string() && content.get_string().empty();
    if (has_calls && traits.null_content && is_empty) content = nullptr;
    if (content.is_string() && !traits.content_text && traits.content_parts && !has_calls)
        content = json::array{json::object{{"type", "text"}, {"text", content.get_string()}}};
}

void adapt_arguments(json::object& function, const TemplateTraits& traits) {
    json::value* arguments = function.if_contains("arguments");
    if (arguments == nullptr) return;
    if (traits.object_arguments && arguments->is_string()) {
        boost::system::error_code error;
        json::value parsed = json::parse(arguments->get_string(), error);
        if (!error && parsed.is_object()) *arguments = std::move(parsed);
    } else if (!traits.object_arguments && arguments->is_object()) {
        *arguments = json::value(json::serialize(*arguments));
    }
}

/// Nine letters and digits that stand for an id; the same ones for the same id.
std::string nine_characters(std::string_view id) {
    constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz";
    if (id.size() == 9 && id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"
                                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == id.npos)
        return std::string{id};
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a, 64 bits
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    std::string out(9, '0');
    for (char& c : out) {
        c = kAlphabet[hash % kAlphabet.size()];
        hash /= kAlphabet.size();
    }
    return out;
}

void shorten_id(json::object& object, std::string_view key) {
    if (json::value* id = object.if_contains(key); id != nullptr && id->is_string())
        *id = json::value(nine_characters(id->get_string()));
}

void adapt_tool_calls(json::object& message, const TemplateTraits& traits) {
    if (traits.nine_character_ids) shorten_id(message, "tool_call_id");
    json::value* calls = message.if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) return;
    for (json::value& call : calls->get_array()) {
        if (!call.is_object()) continue;
        if (traits.nine_character_ids) shorten_id(call.get_object(), "id");
        json::value* function = call.get_object().if_contains("function");
        if (function != nullptr && function->is_object())
            adapt_arguments(function->get_object(), traits);
    }
}

void adapt_reasoning(json::object& message) {
    const json::value* reasoning = message.if_contains("reasoning");
    if (reasoning == nullptr || !reasoning->is_string()) return;
    json::value text = *reasoning;
    message.stable_erase("reasoning");
    if (!message.contains("reasoning_content")) message["reasoning_content"] = std::move(text);
}

}  // namespace

json::array adapt_messages(const json::array& messages, const TemplateTraits& traits) {
    json::array out = messages;
    for (json::value& item : out) {
        if (!item.is_object()) continue;
        json::object& message = item.get_object();
        if (json::value* role = message.if_contains("role");
            role != nullptr && role->is_string() && role->get_string() == "developer")
            *role = "system";
        adapt_content(message, traits);
        adapt_tool_calls(message, traits);
        adapt_reasoning(message);
    }
    return out;
}

TemplateChoice choose_template(const base::Metadata& metadata, std::string_view override_source,
                               bool has_tools) {
    if (!override_source.empty()) return {override_source, "override"};
    if (has_tools)
        if (const std::string* source = metadata.find_string(kToolTemplateKey))
            return {*source, kToolTemplateKey};
    if (const std::string* source = metadata.find_string(kTemplateKey))
        return {*source, kTemplateKey};
    return {kChatMl, "chatml"};
}

std::string_view without_added_tokens(std::string_view rendered, const Tokenizer& tokenizer) {
    const std::string_view bos = tokenizer.bos_text(), eos = tokenizer.eos_text();
    if (tokenizer.add_bos() && !bos.empty() && rendered.starts_with(bos))
        rendered.remove_prefix(bos.size());
    if (tokenizer.add_eos() && !eos.empty() && rendered.ends_with(eos))
        rendered.remove_suffix(eos.size());
    return rendered;
}

}  // namespace text
