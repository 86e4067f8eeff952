#include "daemon/server/protocol/completion_text.hpp"

#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/text_codec.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace server {
namespace {

void append_ids(std::string& out, std::string_view name, const std::vector<std::int32_t>* ids) {
    if (ids == nullptr) return;
    out += ",\"";
    out += name;
    out += "\":[";
    for (std::size_t i = 0; i < ids->size(); ++i) {
        if (i != 0) out += ',';
        out += std::to_string((*ids)[i]);
    }
    out += ']';
}

/// @return  where further text may go
std::size_t append_choice(std::string& out, const TextChoice& choice) {
    out += R"({"index":)" + std::to_string(choice.index) + R"(,"text":")";
    append_escaped(out, choice.text);
    const std::size_t text_end = out.size();
    out += R"(","logprobs":)";
    out += choice.logprobs.empty() ? "null" : choice.logprobs;
    append_reason(out, choice.finish_reason);
    if (!choice.prompt_logprobs.empty()) {
        out += R"(,"prompt_logprobs":)";
        out += choice.prompt_logprobs;
    }
    append_ids(out, "prompt_token_ids", choice.prompt_token_ids);
    append_ids(out, "token_ids", choice.token_ids);
    out += '}';
    return text_end;
}

std::size_t count_code_points(std::string_view bytes) {
    return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

/// A token as the legacy arrays name it.
std::string legacy_name(std::string_view bytes) {
    if (text::is_valid_utf8(bytes)) return std::string{bytes};
    constexpr char kHex[] = "0123456789abcdef";
    std::string out = "bytes:";
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        out += "\\x";
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
    return out;
}

}  // namespace

void LegacyLogprobs::add(const ScoredToken& scored) {
    if (!tokens_.empty()) {
        tokens_ += ',';
        token_logprobs_ += ',';
        top_logprobs_ += ',';
        text_offset_ += ',';
    }
    const std::string name = legacy_name(codec_->piece(scored.token, true));
    append_string(tokens_, name);
    append_number(token_logprobs_, scored.logprobs.logprob);
    text_offset_ += std::to_string(offset_);
    offset_ += count_code_points(codec_->piece(scored.token, false));
    if (num_top_ == 0) return;
    if (std::isnan(scored.logprobs.logprob)) {
        top_logprobs_ += "null";
        return;
    }
    // Two tokens may print the same; the more likely one keeps the name.
    std::vector<std::string> names;
    const auto append = [&](std::string token_name, float logprob) {
        if (std::find(names.begin(), names.end(), token_name) != names.end()) return;
        if (!names.empty()) top_logprobs_ += ',';
        append_string(top_logprobs_, token_name);
        top_logprobs_ += ':';
        append_number(top_logprobs_, logprob);
        names.push_back(std::move(token_name));
    };
    top_logprobs_ += '{';
    const std::size_t n = std::min(num_top_, scored.logprobs.top.size());
    for (std::size_t i = 0; i < n; ++i) {
        const auto& [token, logprob] = scored.logprobs.top[i];
        append(legacy_name(codec_->piece(token, true)), logprob);
    }
    append(name, scored.logprobs.logprob);
    top_logprobs_ += '}';
}

std::string LegacyLogprobs::take() {
    std::string out = R"({"tokens":[)" + tokens_ + R"(],"token_logprobs":[)" + token_logprobs_ +
                      R"(],"top_logprobs":)" +
                      (num_top_ == 0 ? "null" : '[' + top_logprobs_ + ']') + R"(,"text_offset":[)" +
                      text_offset_ + "]}";
    tokens_.clear();
    token_logprobs_.clear();
    top_logprobs_.clear();
    text_offset_.clear();
    return out;
}

EventText text_chunk(const CompletionHead& head, const TextChoice& choice, bool with_null_usage) {
    EventText out{open_completion(head)};
    const std::size_t text_end = append_choice(out.json, choice);
    if (choice.logprobs.empty() && choice.finish_reason.empty() && choice.token_ids == nullptr)
        out.insert_at = text_end;
    out.json += chunk_end(with_null_usage);
    return out;
}

std::string text_completion(const CompletionHead& head, std::span<const TextChoice> choices,
                            const Usage& usage) {
    std::string out = open_completion(head);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (i != 0) out += ',';
        append_choice(out, choices[i]);
    }
    append_usage_end(out, usage);
    return out;
}

std::string prompt_logprobs_list(std::span<const std::int32_t> prompt,
                                 std::span<const base::TokenLogprobs> scores, std::size_t num_top,
                                 const TextCodec& codec) {
    std::string out = "[";
    for (std::size_t i = 0; i < prompt.size() && i < scores.size(); ++i) {
        if (i == 0) {  // nothing precedes it
            out += "null";
            continue;
        }
        out += ",{";
        bool has_own = false;
        const auto append = [&](std::int32_t token, float logprob, std::string_view rank) {
            if (out.back() != '{') out += ',';
            out += '"' + std::to_string(token) + R"(":{"logprob":)";
            append_number(out, logprob);
            out += R"(,"rank":)";
            out += rank;
            out += R"(,"decoded_token":)";
            append_string(out, lossy_text(codec.piece(token, true)));
            out += '}';
            has_own |= token == prompt[i];
        };
        const auto& top = scores[i].top;
        for (std::size_t k = 0; k < num_top && k < top.size(); ++k)
            append(top[k].first, top[k].second, std::to_string(k + 1));
        if (!has_own) append(prompt[i], scores[i].logprob, "null");
        out += '}';
    }
    return out + ']';
}

}  // namespace server
