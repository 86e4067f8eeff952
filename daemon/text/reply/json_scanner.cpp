#include "daemon/text/reply/json_scanner.hpp"

#include <cstdio>

namespace reply {

namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// A control character as a string spells it.
void append_escaped(std::string& out, char c) {
    switch (c) {
        case '\n':
            out.append("\\n");
            return;
        case '\r':
            out.append("\\r");
            return;
        case '\t':
            out.append("\\t");
            return;
        default:
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            out.append(escape);
    }
}

}  // namespace

JsonScanner::Step JsonScanner::push(char c, std::string& copy) {
    if (state_ >= State::string && state_ <= State::hex4) return in_string(c, copy);
    Step step = Step::more;
    if (state_ >= State::minus && state_ <= State::exponent_digits) {
        step = in_number(c);
        // Inside a container, the byte after a number is a token of its own.
        if (step == Step::ended && depth_ > 0) {
            state_ = State::after_item;
            return push(c, copy);
        }
    } else if (state_ == State::word) {
        if (c != *word_) return Step::error;
        if (*++word_ == '\0') step = end_value();
    } else if (!is_space(c)) {
        const bool object = depth_ > 0 && is_object_[depth_ - 1];
        switch (state_) {
            case State::first_item:
                step = c == ']' ? close(false) : begin_value(c);
                break;
            case State::first_key:
            case State::key:
                if (c == '}' && state_ == State::first_key) {
                    step = close(true);
                } else if (c == '"') {
                    state_ = State::string;
                    string_is_key_ = true;
                } else {
                    step = Step::error;
                }
                break;
            case State::colon:
                if (c != ':') return Step::error;
                state_ = State::value;
                break;
            case State::after_item:
                if (c == ',')
                    state_ = object ? State::key : State::value;
                else
                    step = c == '}' || c == ']' ? close(c == '}') : Step::error;
                break;
            default:
                step = begin_value(c);
        }
    }
    if (step == Step::more || step == Step::done) copy.push_back(c);
    return step;
}

JsonScanner::Step JsonScanner::begin_value(char c) {
    switch (c) {
        case '{':
        case '[':
            if (depth_ == kMaxDepth) return Step::error;
            is_object_[depth_++] = c == '{';
            state_ = c == '{' ? State::first_key : State::first_item;
            return Step::more;
        case '"':
            state_ = State::string;
            string_is_key_ = false;
            return Step::more;
        case 't':
            word_ = "rue";
            break;
        case 'f':
            word_ = "alse";
            break;
        case 'n':
            word_ = "ull";
            break;
        case '-':
            state_ = State::minus;
            return Step::more;
        case '0':
            state_ = State::zero;
            return Step::more;
        default:
            if (!is_digit(c)) return Step::error;
            state_ = State::digits;
            return Step::more;
    }
    state_ = State::word;
    return Step::more;
}

JsonScanner::Step JsonScanner::close(bool object) {
    if (depth_ == 0 || is_object_[depth_ - 1] != object) return Step::error;
    --depth_;
    return end_value();
}

JsonScanner::Step JsonScanner::end_value() {
    state_ = State::after_item;
    return depth_ == 0 ? Step::done : Step::more;
}

JsonScanner::Step JsonScanner::in_string(char c, std::string& copy) {
    switch (state_) {
        case State::string:
            if (static_cast<unsigned char>(c) < 0x20) {
                append_escaped(copy, c);
                return Step::more;
            }
            copy.push_back(c);
            if (c == '\\') state_ = State::escape;
            if (c != '"') return Step::more;
            if (!string_is_key_) return end_value();
            state_ = State::colon;
            return Step::more;
        case State::escape:
            if (c == 'u')
                state_ = State::hex1;
            else if (std::string_view{"\"\\/bfnrt"}.find(c) != std::string_view::npos)
                state_ = State::string;
            else
                return Step::error;
            break;
        default:
            if (!is_hex(c)) return Step::error;
            state_ = state_ == State::hex4 ? State::string
                                           : static_cast<State>(static_cast<int>(state_) + 1);
    }
    copy.push_back(c);
    return Step::more;
}

JsonScanner::Step JsonScanner::in_number(char c) {
    switch (state_) {
        case State::minus:
            if (!is_digit(c)) return Step::error;
            state_ = c == '0' ? State::zero : State::digits;
            return Step::more;
        case State::zero:
        case State::digits:
            if (is_digit(c) && state_ == State::digits) return Step::more;
            if (c == '.') {
                state_ = State::point;
                return Step::more;
            }
            [[fallthrough]];
        case State::fraction:
            if (is_digit(c)) return state_ == State::fraction ? Step::more : Step::error;
            if (c != 'e' && c != 'E') return Step::ended;
            state_ = State::exponent;
            return Step::more;
        case State::point:
            if (!is_digit(c)) return Step::error;
            state_ = State::fraction;
            return Step::more;
        case State::exponent:
            if (c == '+' || c == '-') {
                state_ = State::exponent_sign;
                return Step::more;
            }
            [[fallthrough]];
        case State::exponent_sign:
            if (!is_digit(c)) return Step::error;
            state_ = State::exponent_digits;
            return Step::more;
        default:
            return is_digit(c) ? Step::more : Step::ended;
    }
}

bool JsonScanner::number_may_end() const noexcept {
    return state_ == State::zero || state_ == State::digits || state_ == State::fraction ||
           state_ == State::exponent_digits;
}

}  // namespace reply
