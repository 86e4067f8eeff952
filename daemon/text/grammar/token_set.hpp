#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace grammar {

/// Words of a mask over a vocabulary: bit t % 32 of word t / 32 is token t.
[[nodiscard]] constexpr std::size_t num_words(std::int32_t vocab_size) {
    return (static_cast<std::size_t>(vocab_size) + 31) / 32;
}

inline void set_bit(std::span<std::uint32_t> bits, std::int32_t token) {
    const auto t = static_cast<std::uint32_t>(token);
    bits[t / 32] |= 1U << (t % 32);
}

[[nodiscard]] inline bool has_bit(std::span<const std::uint32_t> bits, std::int32_t token) {
    const auto t = static_cast<std::uint32_t>(token);
    return (bits[t / 32] >> (t % 32) & 1U) != 0;
}

/// Tokens, as a list while they are few, else as a mask. Immutable.
class TokenSet {
public:
    TokenSet() = default;
    TokenSet(std::vector<std::int32_t> tokens, std::int32_t vocab_size) {
        if (tokens.size() < num_words(vocab_size)) {
            tokens.shrink_to_fit();
            list_ = std::move(tokens);
            return;
        }
        words_.resize(num_words(vocab_size));
        for (const std::int32_t token : tokens) set_bit(words_, token);
    }

    void add_to(std::span<std::uint32_t> bits) const {
        for (const std::int32_t token : list_) set_bit(bits, token);
        for (std::size_t i = 0; i < words_.size(); ++i) bits[i] |= words_[i];
    }
    [[nodiscard]] std::size_t num_bytes() const { return list_.size() * 4 + words_.size() * 4; }

private:
    std::vector<std::int32_t> list_;
    std::vector<std::uint32_t> words_;
};

}  // namespace grammar
