#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

namespace reply {

/// Reads one JSON value byte by byte, and refuses the first byte that no JSON value could have
/// there: what has been copied so far is always the beginning of a valid value. Source: RFC 8259.
/// Raw control characters inside strings, which models do write, are copied as escapes.
class JsonScanner {
public:
    enum class Step {
        more,   ///< the byte belongs to the value, which goes on
        done,   ///< the byte ends the value
        ended,  ///< the value (a number, a word) ended before this byte, which is not its own
        error,  ///< no value goes on like this
    };

    /// @param copy  what the byte is in valid JSON is appended; white space around tokens too
    [[nodiscard]] Step push(char c, std::string& copy);

    /// For values that end with the text: whether it may end here.
    [[nodiscard]] bool may_end() const noexcept { return depth_ == 0 && number_may_end(); }

    static constexpr std::size_t kMaxDepth = 64;

private:
    enum class State : std::uint8_t {
        value,
        first_item,
        first_key,
        key,
        colon,
        after_item,  // between tokens
        string,
        escape,
        hex1,
        hex2,
        hex3,
        hex4,
        minus,
        zero,
        digits,
        point,
        fraction,
        exponent,
        exponent_sign,
        exponent_digits,
        word,
    };

    Step begin_value(char c);
    Step close(bool object);
    Step end_value();
    Step in_string(char c, std::string& copy);
    Step in_number(char c);
    [[nodiscard]] bool number_may_end() const noexcept;

    State state_ = State::value;
    bool string_is_key_ = false;
    const char* word_ = nullptr;  // what is left of true, false or null
    std::bitset<kMaxDepth> is_object_;
    std::size_t depth_ = 0;
};

}  // namespace reply
