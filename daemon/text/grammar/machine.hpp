#pragma once

#include "daemon/text/grammar/automaton.hpp"

#include <bitset>
#include <cstdint>
#include <vector>

namespace grammar {

/// A place in a grammar: a state of a rule, or of the body of a string, and what it returns to.
struct Config {
    std::uint32_t state = 0;      ///< of the grammar; kInString and more: of StringBody
    std::uint32_t frame = kNone;  ///< kNone: at the bottom
    std::uint32_t min_chars = 0, max_chars = kUnbounded;  ///< of a string, still to come

    friend bool operator==(const Config&, const Config&) = default;
};
inline constexpr std::uint32_t kInString = 0x8000'0000U;

/// All places that a text may have come to, those that go on with a byte.
struct Configs {
    std::vector<Config> items;
    bool at_end = false;  ///< the rule at the bottom is complete

    void clear() {
        items.clear();
        at_end = false;
    }
    [[nodiscard]] bool is_dead() const { return items.empty() && !at_end; }
};

/// Runs a grammar over bytes: a pushdown automaton with all choices followed at once.
///
/// Of choices that stay open together the first kMaxConfigs are followed: others are dropped, which
/// narrows what is accepted and never widens it. One thread.
class Machine {
public:
    static constexpr std::size_t kMaxConfigs = 256;

    explicit Machine(const Grammar& grammar) : grammar_{&grammar} {}

    [[nodiscard]] const Grammar& grammar() const { return *grammar_; }
    /// Adds a place and those that it leads to without a byte.
    void add(const Config& config, Configs& out);
    /// Adds what follows when the rule or string of a place ends.
    void add_return(const Config& config, Configs& out);
    /// Where a byte leads from all places.
    void step(const Configs& from, std::uint8_t byte, Configs& to);
    /// Where a byte leads from one place; adds to `to`.
    void step(const Config& from, std::uint8_t byte, Configs& to);
    /// Bytes that lead on.
    void add_first_bytes(const Configs& from, std::bitset<256>& bytes) const;

    [[nodiscard]] std::uint32_t depth(std::uint32_t frame) const {
        return frame == kNone ? 0 : frames_[frame].depth;
    }
    [[nodiscard]] std::size_t num_frames() const { return frames_.size(); }
    /// Forgets frames that were opened since; no place in use may have them.
    void forget_frames(std::size_t num_frames) { frames_.resize(num_frames); }
    /// Keeps only the frames that are in use.
    void compact(Configs& in_use);
    /// Frames below which nothing may be opened; kMaxDepth by default.
    void limit_depth(std::uint32_t depth) { max_depth_ = depth; }

private:
    struct Frame {
        std::uint32_t parent, return_state, depth;
    };
    void insert(const Config& config, Configs& out) const;
    [[nodiscard]] bool is_same_stack(std::uint32_t a, std::uint32_t b) const;

    const Grammar* grammar_;
    std::vector<Frame> frames_;
    std::uint32_t max_depth_ = kMaxDepth;
};

}  // namespace grammar
