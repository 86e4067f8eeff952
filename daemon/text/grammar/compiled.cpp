#include "daemon/text/grammar/compiled.hpp"

#include "daemon/base/check.hpp"

#include <algorithm>
#include <utility>

namespace grammar {

namespace {

constexpr std::size_t kMaxFrames = 1024;  // before those that are out of use are dropped

}  // namespace

Compiled::Compiled(Grammar grammar, std::shared_ptr<const TokenTable> tokens)
    : grammar_{std::move(grammar)}, tokens_{std::move(tokens)}, masks_{grammar_, *tokens_} {}

std::unique_ptr<base::TokenConstraint> Compiled::start() const {
    return std::make_unique<Matcher>(shared_from_this());
}

std::size_t Compiled::num_bytes() const {
    return masks_.num_bytes() + grammar_.num_states() * (sizeof(State) + 2 * sizeof(Edge));
}

Matcher::Matcher(std::shared_ptr<const Compiled> rules)
    : rules_{std::move(rules)}, machine_{rules_->grammar()} {
    machine_.add({rules_->grammar().start(0)}, places_);
}

void Matcher::allow(std::span<std::uint32_t> bits) {
    CHECK(bits.size() >= num_words(rules_->tokens().vocab_size()));
    std::ranges::fill(bits, 0U);
    if (places_.at_end || is_ended_)
        for (const std::int32_t token : rules_->tokens().eog()) set_bit(bits, token);
    if (is_ended_) return;
    for (const Config& place : places_.items)
        place.state >= kInString ? add_string(place, bits) : add_state(place, bits);
}

void Matcher::add_string(const Config& place, std::span<std::uint32_t> bits) {
    const auto& tokens = rules_->tokens().string_tokens(place.state - kInString);
    const auto end_of = [&](const auto& by_chars) {
        return std::min<std::size_t>(by_chars.size(), std::size_t{place.max_chars} + 1);
    };
    if (place.max_chars == kUnbounded || tokens.by_chars.size() <= place.max_chars)
        tokens.inside.add_to(bits);
    else
        for (std::size_t n = 0; n < end_of(tokens.by_chars); ++n) tokens.by_chars[n].add_to(bits);
    for (std::size_t n = place.min_chars; n < end_of(tokens.closing); ++n)
        tokens.closing[n].add_to(bits);

    if (tokens.behind.is_empty()) return;
    walk_.start().clear();
    machine_.add_return(place, walk_.start());
    (void)walk_.run(machine_, tokens.behind, [&](std::uint32_t i, const Configs&) {
        for (const auto& token : tokens.behind.tokens_at(i))
            if (token.num_chars >= place.min_chars && token.num_chars <= place.max_chars)
                set_bit(bits, token.id);
    });
}

void Matcher::add_state(const Config& place, std::span<std::uint32_t> bits) {
    walk_.start().clear();
    const auto add_all = [&](const TokenTrie& trie) {
        (void)walk_.run(machine_, trie, [&](std::uint32_t i, const Configs&) {
            for (const auto& token : trie.tokens_at(i)) set_bit(bits, token.id);
        });
    };
    if (machine_.depth(place.frame) > rules_->masks().max_depth()) {  // close to the deepest
        walk_.start().items.push_back(place);
        return add_all(rules_->tokens().trie());
    }
    const StateMasks::Mask& mask = rules_->masks().of(place.state);
    mask.inside.add_to(bits);
    if (mask.behind.is_empty() || place.frame == kNone) return;
    machine_.add_return(place, walk_.start());
    add_all(mask.behind);
}

bool Matcher::accept(std::int32_t token) {
    if (is_ended_) return rules_->tokens().is_eog(token);
    if (rules_->tokens().is_eog(token)) {
        is_ended_ = true;
        return places_.at_end;
    }
    const bool is_outer = std::ranges::any_of(places_.items, [&](const Config& place) {
        return place.state < kInString && rules_->grammar().state(place.state).is_outer;
    });
    const ControlToken* control = is_outer ? rules_->tokens().find_control(token) : nullptr;
    const std::string_view bytes =
        control != nullptr ? std::string_view{control->text} : rules_->tokens().piece(token);
    for (const char c : bytes) {
        machine_.step(places_, static_cast<std::uint8_t>(c), next_);
        std::swap(places_, next_);
    }
    if (bytes.empty() || places_.is_dead()) {
        is_ended_ = true;
        return false;
    }
    if (machine_.num_frames() > kMaxFrames) machine_.compact(places_);
    return true;
}

}  // namespace grammar
