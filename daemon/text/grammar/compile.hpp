#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/text/grammar/compiled.hpp"
#include "daemon/text/grammar/reply_grammar.hpp"

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

namespace grammar {

using Outcome = std::variant<std::shared_ptr<const Compiled>, Refusal>;

/// Compiles a request's rules for one vocabulary. Bounded in time and memory for any schema:
/// seconds and some 100 MiB at the very most. Any thread.
[[nodiscard]] Outcome compile(const base::OutputRules& rules, const ReplyForm& form,
                              std::shared_ptr<const TokenTable> tokens);

/// What was compiled for one vocabulary, least recently used out first. Any thread.
class Cache {
public:
    struct Limits {
        std::size_t max_entries = 128;
        std::size_t max_bytes = 128U << 20U;  ///< grammars with their masks and keys
    };
    explicit Cache(std::shared_ptr<const TokenTable> tokens) : Cache{std::move(tokens), Limits{}} {}
    Cache(std::shared_ptr<const TokenTable> tokens, Limits limits)
        : tokens_{std::move(tokens)}, limits_{limits} {}

    /// compile(), or what it gave before for the same rules. Refusals are not kept.
    [[nodiscard]] Outcome get(const base::OutputRules& rules, const ReplyForm& form);

    [[nodiscard]] std::size_t num_entries() const;
    [[nodiscard]] const TokenTable& tokens() const { return *tokens_; }

private:
    struct Entry {
        std::string key;
        std::shared_ptr<const Compiled> compiled;  // held with the sequences that follow it
        std::size_t num_bytes = 0;
    };
    using Entries = std::list<Entry>;
    [[nodiscard]] std::shared_ptr<const Compiled> find(std::string_view key);
    void keep(Entry entry);

    std::shared_ptr<const TokenTable> tokens_;  // held with the compiled grammars
    Limits limits_;
    mutable std::mutex mutex_;
    Entries entries_;  // last used first
    std::unordered_map<std::string_view, Entries::iterator> by_key_;
    std::size_t num_bytes_ = 0;
};

}  // namespace grammar
