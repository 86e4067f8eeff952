#pragma once

#include "daemon/text/grammar/compile.hpp"
#include "daemon/text/grammar/machine.hpp"

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace grammar_test {

using Rng = std::mt19937_64;

inline base::OutputRules schema_rules(std::string schema) {
    base::OutputRules rules;
    rules.form = base::OutputRules::Form::json_schema;
    rules.schema_name = "answer";
    rules.schema = std::move(schema);
    rules.strict = true;
    return rules;
}

/// The 256 bytes as tokens, `more`, and an end-of-generation token, which is the last.
inline std::shared_ptr<const grammar::TokenTable> byte_vocabulary(
    const std::vector<std::string>& more = {}, std::vector<std::string> controls = {}) {
    grammar::TokenSource source;
    for (unsigned byte = 0; byte < 256; ++byte)
        source.pieces.emplace_back(1, static_cast<char>(byte));
    source.pieces.insert(source.pieces.end(), more.begin(), more.end());
    for (std::string& text : controls) {
        source.controls.push_back(
            {static_cast<std::int32_t>(source.pieces.size()), std::move(text)});
        source.pieces.emplace_back();
    }
    source.eog = {static_cast<std::int32_t>(source.pieces.size())};
    source.pieces.emplace_back();
    return std::make_shared<const grammar::TokenTable>(std::move(source));
}

/// "" or why a schema is refused.
inline std::string refusal_of(const base::OutputRules& rules, const grammar::ReplyForm& form = {}) {
    static const auto tokens = byte_vocabulary();
    const auto outcome = grammar::compile(rules, form, tokens);
    const auto* refusal = std::get_if<grammar::Refusal>(&outcome);
    return refusal != nullptr ? refusal->message : "";
}

inline std::shared_ptr<const grammar::Compiled> compiled(
    const base::OutputRules& rules, std::shared_ptr<const grammar::TokenTable> tokens,
    const grammar::ReplyForm& form = {}) {
    auto outcome = grammar::compile(rules, form, std::move(tokens));
    if (const auto* refusal = std::get_if<grammar::Refusal>(&outcome))
        throw std::runtime_error{rules.schema + ": " + refusal->message};
    return std::get<0>(std::move(outcome));
}

enum class Verdict { dead, open, whole };

/// What a grammar says of a text: that it begins no text of it, or that it may end here, or must go
/// on.
inline Verdict judge(const grammar::Grammar& grammar, std::string_view text) {
    grammar::Machine machine{grammar};
    grammar::Configs at, next;
    machine.add({grammar.start(0)}, at);
    for (const char c : text) {
        machine.step(at, static_cast<std::uint8_t>(c), next);
        std::swap(at, next);
    }
    return at.at_end ? Verdict::whole : at.is_dead() ? Verdict::dead : Verdict::open;
}

/// One allowed token, at random; -1 when none is.
inline std::int32_t pick(base::TokenConstraint& constraint, std::vector<std::uint32_t>& bits,
                         Rng& rng, const grammar::TokenTable& tokens, bool wants_end) {
    constraint.allow(bits);
    std::vector<std::int32_t> allowed;
    for (std::int32_t token = 0; token < tokens.vocab_size(); ++token)
        if (grammar::has_bit(bits, token)) allowed.push_back(token);
    if (allowed.empty()) return -1;
    if (wants_end) {
        for (const std::int32_t token : tokens.eog())
            if (grammar::has_bit(bits, token)) return token;
        // What closes is mostly short and no letter.
        std::vector<std::int32_t> closing;
        for (const std::int32_t token : allowed)
            if (const auto piece = tokens.piece(token);
                !piece.empty() &&
                std::string_view{"\"]}"}.find(piece.front()) != std::string_view::npos)
                closing.push_back(token);
        if (!closing.empty() && rng() % 4 != 0) allowed = closing;
    }
    return allowed[rng() % allowed.size()];
}

struct Walk {
    std::string text;
    bool is_whole = false;  ///< ended by an end-of-generation token
};

/// Tokens that the constraint allows, one after another, at random.
/// @param hurry_after  tokens after which what closes is preferred
inline Walk walk(const std::shared_ptr<const grammar::Compiled>& rules, Rng& rng, int hurry_after,
                 int max_tokens) {
    const auto constraint = rules->start();
    const grammar::TokenTable& tokens = rules->tokens();
    std::vector<std::uint32_t> bits(grammar::num_words(tokens.vocab_size()));
    Walk out;
    for (int i = 0; i < max_tokens; ++i) {
        const std::int32_t token = pick(*constraint, bits, rng, tokens, i >= hurry_after);
        if (token < 0) throw std::runtime_error{"no token is allowed after: " + out.text};
        if (!constraint->accept(token)) throw std::runtime_error{"an allowed token is refused"};
        if (tokens.is_eog(token)) {
            out.is_whole = true;
            break;
        }
        const grammar::ControlToken* control = tokens.find_control(token);
        out.text += control != nullptr ? std::string_view{control->text} : tokens.piece(token);
    }
    return out;
}

}  // namespace grammar_test
