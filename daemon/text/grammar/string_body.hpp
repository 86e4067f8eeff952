#pragma once

#include <array>
#include <bitset>
#include <cstdint>

namespace grammar {

/// What follows the opening quote of a JSON string, up to and including the closing one, as an
/// automaton over bytes that counts characters. Well-formed UTF-8 without control characters; of
/// the escapes those of RFC 8259 but for surrogates: what lies beyond U+FFFF is written as it is.
class StringBody {
public:
    static constexpr std::uint32_t kNumStates = 14;
    static constexpr std::uint32_t kStart = 0;  ///< between characters

    enum class Move : std::uint8_t {
        none,      ///< no string goes on like this
        inside,    ///< of a character
        complete,  ///< a character is
        close,     ///< the closing quote
    };
    struct Step {
        Move move = Move::none;
        std::uint8_t state = 0;
    };

    [[nodiscard]] static Step step(std::uint32_t state, std::uint8_t byte) {
        return kTable[state][byte];
    }

    /// Bytes that lead on from a state.
    [[nodiscard]] static const std::bitset<256>& first_bytes(std::uint32_t state) {
        return kFirstBytes[state];
    }

private:
    using Table = std::array<std::array<Step, 256>, kNumStates>;
    [[nodiscard]] static Table make();
    static const Table kTable;
    static const std::array<std::bitset<256>, kNumStates> kFirstBytes;
};

}  // namespace grammar
