#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace base {

/// What one sequence may say next, as it goes. Belongs to one thread.
class TokenConstraint {
public:
    virtual ~TokenConstraint() = default;

    /// The tokens that may follow: bit t % 32 of word t / 32 is token t.
    /// At least one, always.
    /// @param bits  [(vocab_size + 31) / 32 or more]; written whole
    virtual void allow(std::span<std::uint32_t> bits) = 0;
    /// One of the tokens that were allowed follows.
    /// @return false when it was none of them: nothing can follow
    virtual bool accept(std::int32_t token) = 0;
    /// Whether an end-of-generation token has been accepted, or none of those allowed.
    [[nodiscard]] virtual bool is_ended() const = 0;
};

/// Rules for what a text may be, shared by the sequences that follow them. Immutable; any thread.
class TokenRules {
public:
    virtual ~TokenRules() = default;
    /// At the beginning of a text.
    [[nodiscard]] virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

}  // namespace base
