#include "daemon/text/grammar/pattern.hpp"

#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace grammar {

namespace {

constexpr std::uint32_t kMaxRepeat = 1000;
constexpr int kMaxNesting = 50;
constexpr char32_t kMaxCharacter = 0x10FFFF;

struct Range {
    char32_t first, last;
};
using Class = std::vector<Range>;

struct Regex {
    enum class Kind { characters, sequence, choice, repeat, begin, end };
    Kind kind = Kind::sequence;
    Class characters;
    std::vector<Regex> parts;
    std::uint32_t min = 0, max = 0;  // repeat
};

Class complement(Class of) {
    std::ranges::sort(of, {}, &Range::first);
    Class out;
    char32_t next = 0;
    for (const Range& range : of) {
        if (range.first > next) out.push_back({next, range.first - 1});
        next = std::max<char32_t>(next, range.last + 1);
    }
    if (next <= kMaxCharacter) out.push_back({next, kMaxCharacter});
    return out;
}

Class digits() {
    return {{'0', '9'}};
}
Class words() {
    return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
Class spaces() {
    return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
            {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
            {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
Class not_line_ends() {
    return complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

class Reader {
public:
    explicit Reader(std::string_view text) : text_{text} {}

    Regex read() {
        Regex regex = choice();
        if (!at_end()) throw PatternError{"an unmatched ')'"};
        return regex;
    }

private:
    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
    bool take(std::string_view what) {
        if (!text_.substr(at_).starts_with(what)) return false;
        at_ += what.size();
        return true;
    }
    char32_t character() {
        if (at_end()) throw PatternError{"it ends too early"};
        const auto c = text::first_character(text_.substr(at_));
        if (!c.is_valid) throw PatternError{"it is no well-formed UTF-8"};
        at_ += c.bytes;
        return c.code_point;
    }

    Regex choice() {
        if (++nesting_ > kMaxNesting) throw PatternError{"groups nest too deep"};
        Regex out{.kind = Regex::Kind::choice};
        do out.parts.push_back(sequence());
        while (take("|"));
        --nesting_;
        if (out.parts.size() == 1) return std::move(out.parts.front());
        return out;
    }

    Regex sequence() {
        Regex out{.kind = Regex::Kind::sequence};
        while (!at_end() && peek() != '|' && peek() != ')') out.parts.push_back(quantified());
        return out;
    }

    Regex quantified() {
        Regex one = atom();
        std::uint32_t min = 1, max = 1;
        if (take("*")) {
            min = 0, max = kUnbounded;
        } else if (take("+")) {
            max = kUnbounded;
        } else if (take("?")) {
            min = 0;
        } else if (peek() == '{' && !counts(min, max)) {
            throw PatternError{"a '{' that begins no count must be escaped"};
        } else if (min == 1 && max == 1) {
            return one;
        }
        if (one.kind == Regex::Kind::begin || one.kind == Regex::Kind::end)
            throw PatternError{"a repeated ^ or $"};
        (void)take("?");
        if (std::string_view{"*+?{"}.find(peek()) != std::string_view::npos && !at_end())
            throw PatternError{"two quantifiers in a row"};
        Regex out{.kind = Regex::Kind::repeat, .min = min, .max = max};
        out.parts.push_back(std::move(one));
        return out;
    }

    bool counts(std::uint32_t& min, std::uint32_t& max) {
        ++at_;
        const auto first = number();
        if (!first) return false;
        min = max = *first;
        if (take(",")) {
            const auto second = number();
            max = second.value_or(kUnbounded);
        }
        if (!take("}")) return false;
        if (max < min) throw PatternError{"a count whose bounds are the wrong way round"};
        return true;
    }

    std::optional<std::uint32_t> number() {
        std::optional<std::uint32_t> out;
        for (; peek() >= '0' && peek() <= '9'; ++at_) {
            out = out.value_or(0) * 10 + static_cast<std::uint32_t>(peek() - '0');
            if (*out > kMaxRepeat) throw PatternError{"a count above 1000"};
        }
        return out;
    }

    Regex atom() {
        const auto of = [](Class c) {
            return Regex{.kind = Regex::Kind::characters, .characters = std::move(c)};
        };
        if (take("^")) return {.kind = Regex::Kind::begin};
        if (take("$")) return {.kind = Regex::Kind::end};
        if (take(".")) return of(not_line_ends());
        if (take("[")) return of(bracket());
        if (take("(?:")) return group();
        if (take("(?")) throw PatternError{"look-around, named groups and flags are not supported"};
        if (take("(")) return group();
        if (take("\\")) return of(escape(false));
        if (std::string_view{"*+?{"}.find(peek()) != std::string_view::npos)
            throw PatternError{"a quantifier without anything before it"};
        const char32_t c = character();
        return of({{c, c}});
    }

    Regex group() {
        Regex inner = choice();
        if (!take(")")) throw PatternError{"an unmatched '('"};
        return inner;
    }

    char32_t hex(int n) {
        char32_t out = 0;
        for (; n > 0; --n) {
            const char32_t c = character();
            const char32_t digit = c >= '0' && c <= '9'   ? c - '0'
                                   : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                   : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                          : 16;
            if (digit == 16) throw PatternError{"an escape with a bad hexadecimal digit"};
            out = out * 16 + digit;
        }
        return out;
    }

    Class escape(bool in_class) {
        const char32_t c = character();
        const auto one = [](char32_t x) { return Class{{x, x}}; };
        switch (c) {
            case 'd':
                return digits();
            case 'D':
                return complement(digits());
            case 'w':
                return words();
            case 'W':
                return complement(words());
            case 's':
                return spaces();
            case 'S':
                return complement(spaces());
            case 't':
                return one('\t');
            case 'n':
                return one('\n');
            case 'r':
                return one('\r');
            case 'f':
                return one('\f');
            case 'v':
                return one('\v');
            case '0':
                return one(0);
            case 'x':
                return one(hex(2));
            case 'u': {
                const char32_t unit = hex(4);
                if (unit >= 0xD800 && unit <= 0xDFFF)
                    throw PatternError{"an escaped surrogate is not supported"};
                return one(unit);
            }
            case 'b':
                if (in_class) return one('\b');
                break;
            default:
                break;
        }
        const bool is_letter =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (is_letter || c >= 0x80) {
            std::string name;
            text::append_utf8(name, c);
            throw PatternError{"\\" + name + " is not supported"};
        }
        return one(c);
    }

    Class bracket() {
        const bool is_complement = take("^");
        Class out;
        while (!take("]")) {
            Class item = class_item();
            const bool is_range = peek() == '-' && !text_.substr(at_).starts_with("-]");
            if (is_range) {
                ++at_;
                const Class end = class_item();
                const bool are_characters = item.size() == 1 && end.size() == 1 &&
                                            item[0].first == item[0].last &&
                                            end[0].first == end[0].last;
                if (!are_characters || end[0].first < item[0].first)
                    throw PatternError{"a range of characters that is none"};
                item[0].last = end[0].first;
            }
            out.insert(out.end(), item.begin(), item.end());
        }
        return is_complement ? complement(std::move(out)) : out;
    }

    Class class_item() {
        if (take("\\")) return escape(true);
        const char32_t c = character();
        return {{c, c}};
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int nesting_ = 0;
};

class Writer {
public:
    Writer(Nfa& nfa, Spelling spelling) : nfa_{nfa}, spelling_{spelling} {}

    Nfa::Id add(const Regex& regex, Nfa::Id from) {
        switch (regex.kind) {
            case Regex::Kind::characters: {
                const Nfa::Id to = nfa_.add();
                for (const Range& range : regex.characters) characters(from, range, to);
                return to;
            }
            case Regex::Kind::sequence:
                for (const Regex& part : regex.parts) from = add(part, from);
                return from;
            case Regex::Kind::choice: {
                const Nfa::Id to = nfa_.add();
                for (const Regex& part : regex.parts) {
                    const Nfa::Id begin = nfa_.add();
                    nfa_.epsilon(from, begin);
                    nfa_.epsilon(add(part, begin), to);
                }
                return to;
            }
            case Regex::Kind::repeat:
                return repeat(regex, from);
            case Regex::Kind::begin:
            case Regex::Kind::end:
                break;
        }
        throw PatternError{"^ and $ are supported only at the ends of the pattern or of a branch"};
    }

    Nfa::Id anything(Nfa::Id from) {
        const Nfa::Id loop = nfa_.add();
        nfa_.epsilon(from, loop);
        characters(loop, {0, kMaxCharacter}, loop);
        return loop;
    }

private:
    Nfa::Id repeat(const Regex& regex, Nfa::Id from) {
        const Regex& one = regex.parts.front();
        for (std::uint32_t i = 0; i < regex.min; ++i) from = add(one, from);
        const Nfa::Id to = nfa_.add();
        if (regex.max == kUnbounded) {
            const Nfa::Id loop = nfa_.add();
            nfa_.epsilon(from, loop);
            nfa_.epsilon(add(one, loop), loop);
            nfa_.epsilon(loop, to);
            return to;
        }
        for (std::uint32_t i = regex.min; i < regex.max; ++i) {
            nfa_.epsilon(from, to);
            from = add(one, from);
        }
        nfa_.epsilon(from, to);
        return to;
    }

    /// Characters as the spelling has them.
    void characters(Nfa::Id from, Range range, Nfa::Id to) {
        if (spelling_ == Spelling::plain) return nfa_.characters(from, range.first, range.last, to);
        constexpr std::pair<char32_t, char> kEscapes[] = {{'\b', 'b'}, {'\t', 't'}, {'\n', 'n'},
                                                          {'\f', 'f'}, {'\r', 'r'}, {'"', '"'},
                                                          {'\\', '\\'}};
        for (const auto& [c, name] : kEscapes) {
            if (c < range.first || c > range.last) continue;
            const Nfa::Id escaped = nfa_.text(from, "\\");
            nfa_.bytes(escaped, static_cast<unsigned char>(name), static_cast<unsigned char>(name),
                       to);
        }
        // Further control characters are left out.
        for (const Range& part :
             {Range{0x20, '"' - 1}, Range{'"' + 1, '\\' - 1}, Range{'\\' + 1, kMaxCharacter}}) {
            const char32_t first = std::max(part.first, range.first),
                           last = std::min(part.last, range.last);
            if (first <= last) nfa_.characters(from, first, last, to);
        }
    }

    Nfa& nfa_;
    Spelling spelling_;
};

/// Takes ^ and $ off the ends of a branch.
Regex without_anchors(Regex branch, bool& has_begin, bool& has_end) {
    if (branch.kind == Regex::Kind::begin || branch.kind == Regex::Kind::end)
        branch = Regex{.kind = Regex::Kind::sequence, .parts = {branch}};
    if (branch.kind != Regex::Kind::sequence) return branch;
    auto& parts = branch.parts;
    has_begin = !parts.empty() && parts.front().kind == Regex::Kind::begin;
    if (has_begin) parts.erase(parts.begin());
    has_end = !parts.empty() && parts.back().kind == Regex::Kind::end;
    if (has_end) parts.pop_back();
    return branch;
}

}  // namespace

Nfa::Id add_pattern(Nfa& nfa, Nfa::Id from, std::string_view pattern, PatternOptions options) {
    const Regex regex = Reader{pattern}.read();
    std::vector<Regex> branches{regex};
    if (regex.kind == Regex::Kind::choice) branches = regex.parts;
    Writer writer{nfa, options.spelling};
    const Nfa::Id to = nfa.add();
    for (const Regex& branch : branches) {
        bool has_begin = false, has_end = false;
        const Regex bare = without_anchors(branch, has_begin, has_end);
        Nfa::Id at = nfa.add();
        nfa.epsilon(from, at);
        if (!has_begin && !options.is_whole) at = writer.anything(at);
        at = writer.add(bare, at);
        if (!has_end && !options.is_whole) at = writer.anything(at);
        nfa.epsilon(at, to);
    }
    return to;
}

}  // namespace grammar
