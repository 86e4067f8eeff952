#include "daemon/text/grammar/compile.hpp"

#include "daemon/text/reply/format.hpp"

#include <utility>

namespace grammar {

namespace {

/// Everything that the grammar depends on but the vocabulary; lengths keep the parts apart.
std::string key_of(const base::OutputRules& rules, const ReplyForm& form) {
    std::string key;
    const auto add = [&key](std::string_view part) {
        key += std::to_string(part.size()) + ':';
        key += part;
    };
    const auto flag = [&key](auto value) {
        key += static_cast<char>('0' + static_cast<int>(value));
    };
    flag(rules.form);
    flag(rules.calls);
    flag(rules.parallel_calls);
    flag(form.in_reasoning);
    add(form.format != nullptr ? form.format->name : "");
    add(rules.schema);
    for (const base::CallableTool& tool : rules.tools) {
        flag(tool.strict);
        add(tool.name);
        add(tool.parameters);
    }
    return key;
}

}  // namespace

Outcome compile(const base::OutputRules& rules, const ReplyForm& form,
                std::shared_ptr<const TokenTable> tokens) {
    if (const auto byte = tokens->missing_byte()) {
        return Refusal{Refusal::Part::model, 0,
                       "Answers of this model cannot be bound to a form: no token of its "
                       "vocabulary is the byte " +
                           std::to_string(*byte) + " alone."};
    }
    try {
        return std::make_shared<const Compiled>(make_reply_grammar(rules, form, *tokens), tokens);
    } catch (const RefusalError& error) {
        return error.refusal;
    } catch (const LimitError& error) {
        const bool is_form = rules.form != base::OutputRules::Form::text;
        return Refusal{is_form ? Refusal::Part::schema : Refusal::Part::tool, 0,
                       std::string{"The schema cannot be enforced: "} + error.what() + "."};
    }
}

std::shared_ptr<const Compiled> Cache::find(std::string_view key) {
    const std::lock_guard lock{mutex_};
    const auto known = by_key_.find(key);
    if (known == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->compiled;
}

void Cache::keep(Entry entry) {
    const std::lock_guard lock{mutex_};
    if (by_key_.contains(entry.key) || entry.num_bytes > limits_.max_bytes) return;
    num_bytes_ += entry.num_bytes;
    entries_.push_front(std::move(entry));
    by_key_.emplace(entries_.front().key, entries_.begin());
    while (entries_.size() > limits_.max_entries || num_bytes_ > limits_.max_bytes) {
        num_bytes_ -= entries_.back().num_bytes;
        by_key_.erase(entries_.back().key);
        entries_.pop_back();
    }
}

Outcome Cache::get(const base::OutputRules& rules, const ReplyForm& form) {
    std::string key = key_of(rules, form);
    if (auto known = find(key)) return known;
    Outcome outcome = compile(rules, form, tokens_);
    if (const auto* made = std::get_if<std::shared_ptr<const Compiled>>(&outcome)) {
        const std::size_t num_bytes = (*made)->num_bytes() + 2 * key.size();
        keep({std::move(key), *made, num_bytes});
    }
    return outcome;
}

std::size_t Cache::num_entries() const {
    const std::lock_guard lock{mutex_};
    return entries_.size();
}

}  // namespace grammar
