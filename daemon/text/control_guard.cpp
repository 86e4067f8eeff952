#include "daemon/text/control_guard.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <random>

namespace text {

namespace json = boost::json;

namespace {

// Private-use characters; the nonce between them is what cannot be guessed.
constexpr std::string_view kOpen = "\xEE\x83\xB0", kClose = "\xEE\x83\xB1";  // U+E0F0, U+E0F1
constexpr std::string_view kReasoningMarks[] = {"<think>", "</think>", "[THINK]", "[/THINK]"};

std::string make_nonce() {
    std::random_device random;
    std::string out;
    for (int i = 0; i < 3; ++i) {
        const std::string digits = std::to_string(random());
        out.append(10 - digits.size(), '0').append(digits);
    }
    return out;
}

}  // namespace

bool ControlGuard::protect_text(std::string_view text, bool from_assistant, std::string& out) {
    out.clear();
    std::size_t done = 0;
    for (const TextRange& range : tokenizer_->find_control(text)) {
        const std::string_view control = text.substr(range.begin, range.end - range.begin);
        if (from_assistant && std::find(std::begin(kReasoningMarks), std::end(kReasoningMarks),
                                        control) != std::end(kReasoningMarks))
            continue;
        if (nonce_.empty()) nonce_ = make_nonce();
        out.append(text.substr(done, range.begin - done)).append(kOpen).append(nonce_);
        out.append("-").append(std::to_string(texts_.size())).append(kClose);
        texts_.emplace_back(control);
        done = range.end;
    }
    if (done == 0) return false;
    out.append(text.substr(done));
    return true;
}

void ControlGuard::protect(json::value& value) {
    protect_value(value, false);
}

void ControlGuard::protect_value(json::value& value, bool from_assistant) {
    std::string changed;
    if (value.is_string()) {
        if (protect_text(value.get_string(), from_assistant, changed)) value = changed;
        return;
    }
    if (value.is_array()) {
        for (json::value& item : value.get_array()) protect_value(item, from_assistant);
        return;
    }
    if (!value.is_object()) return;
    const json::value* role = value.get_object().if_contains("role");
    from_assistant |= role != nullptr && role->is_string() && role->get_string() == "assistant";
    json::object kept;  // the same keys in the same order, should one of them change
    bool has_changed_key = false;
    for (auto& member : value.get_object()) {
        const std::string_view key = member.key();
        if ((key != "role" && key != "type") || !member.value().is_string())
            protect_value(member.value(), from_assistant);
        has_changed_key |= !tokenizer_->find_control(key).empty();
    }
    if (!has_changed_key) return;
    for (auto& member : value.get_object()) {
        const bool is_changed = protect_text(member.key(), from_assistant, changed);
        kept[is_changed ? json::string_view{changed} : json::string_view{member.key()}] =
            std::move(member.value());
    }
    value = std::move(kept);
}

std::optional<ControlGuard::Restored> ControlGuard::restore(std::string_view rendered) const {
    Restored out;
    if (texts_.empty()) {
        out.text = rendered;
        return out;
    }
    for (std::size_t at = 0;;) {
        const std::size_t nonce = rendered.find(nonce_, at);
        if (nonce == rendered.npos) {
            out.text.append(rendered.substr(at));
            return out;
        }
        const std::string_view before = rendered.substr(at, nonce - at);
        if (!before.ends_with(kOpen)) return std::nullopt;
        out.text.append(before.substr(0, before.size() - kOpen.size()));
        std::string_view rest = rendered.substr(nonce + nonce_.size());
        std::size_t index = 0;
        if (!rest.starts_with('-')) return std::nullopt;
        rest.remove_prefix(1);
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        if (error != std::errc{} || index >= texts_.size() || !rest.starts_with(kClose))
            return std::nullopt;
        out.plain.push_back({out.text.size(), out.text.size() + texts_[index].size()});
        out.text.append(texts_[index]);
        at = rendered.size() - rest.size() + kClose.size();
    }
}

}  // namespace text
