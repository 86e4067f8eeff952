#include "daemon/text/grammar/string_body.hpp"

#include <string_view>

namespace grammar {

namespace {

enum : std::uint8_t {
    kBetween,
    kEscape,
    kHex1,  // after \u
    kHexD,  // after \ud, where 8 and above begin a surrogate
    kHex2,  // three digits to go
    kHex3,
    kHex4,
    kTail1,  // continuation bytes to go
    kTail2,
    kTail3,
    kTailE0,  // after a first byte that limits the second: no overlong forms, no surrogates
    kTailED,
    kTailF0,
    kTailF4,
};

}  // namespace

const StringBody::Table StringBody::kTable = StringBody::make();

const std::array<std::bitset<256>, StringBody::kNumStates> StringBody::kFirstBytes = [] {
    std::array<std::bitset<256>, kNumStates> out;
    for (std::uint32_t state = 0; state < kNumStates; ++state)
        for (unsigned byte = 0; byte < 256; ++byte)
            out[state][byte] = kTable[state][byte].move != Move::none;
    return out;
}();

/// Source: RFC 8259 section 7; The Unicode Standard, table 3-7.
StringBody::Table StringBody::make() {
    Table table{};
    const auto set = [&table](std::uint8_t state, unsigned first, unsigned last, Move move,
                              std::uint8_t to = kBetween) {
        for (unsigned byte = first; byte <= last; ++byte) table[state][byte] = {move, to};
    };
    const auto set_hex = [&](std::uint8_t state, Move move, std::uint8_t to) {
        set(state, '0', '9', move, to);
        set(state, 'a', 'f', move, to);
        set(state, 'A', 'F', move, to);
    };
    set(kBetween, 0x20, 0x7F, Move::complete);
    set(kBetween, '"', '"', Move::close);
    set(kBetween, '\\', '\\', Move::inside, kEscape);
    set(kBetween, 0xC2, 0xDF, Move::inside, kTail1);
    set(kBetween, 0xE0, 0xE0, Move::inside, kTailE0);
    set(kBetween, 0xE1, 0xEF, Move::inside, kTail2);
    set(kBetween, 0xED, 0xED, Move::inside, kTailED);
    set(kBetween, 0xF0, 0xF0, Move::inside, kTailF0);
    set(kBetween, 0xF1, 0xF3, Move::inside, kTail3);
    set(kBetween, 0xF4, 0xF4, Move::inside, kTailF4);

    for (const char c : std::string_view{"\"\\/bfnrt"})
        set(kEscape, static_cast<unsigned char>(c), static_cast<unsigned char>(c), Move::complete);
    set(kEscape, 'u', 'u', Move::inside, kHex1);
    set_hex(kHex1, Move::inside, kHex2);
    set(kHex1, 'd', 'd', Move::inside, kHexD);
    set(kHex1, 'D', 'D', Move::inside, kHexD);
    set(kHexD, '0', '7', Move::inside, kHex3);
    set_hex(kHex2, Move::inside, kHex3);
    set_hex(kHex3, Move::inside, kHex4);
    set_hex(kHex4, Move::complete, kBetween);

    set(kTail1, 0x80, 0xBF, Move::complete);
    set(kTail2, 0x80, 0xBF, Move::inside, kTail1);
    set(kTail3, 0x80, 0xBF, Move::inside, kTail2);
    set(kTailE0, 0xA0, 0xBF, Move::inside, kTail1);
    set(kTailED, 0x80, 0x9F, Move::inside, kTail1);
    set(kTailF0, 0x90, 0xBF, Move::inside, kTail2);
    set(kTailF4, 0x80, 0x8F, Move::inside, kTail2);
    return table;
}

}  // namespace grammar
