#include "daemon/text/round_trip.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <string>

namespace text {

namespace {

constexpr std::string_view kProbe[] = {
    "The quick brown fox doesn't jump over 13 lazy dogs, it's 24:60 o'clock!",
    "Café déjà vu — 123 😊",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "敏捷的棕色狐狸跳过了懒狗。いろはにほへと、カタカナも。키스의 고유조건은",
    "صِف خَلقَ خَودٍ כָּל הָעוֹלָם ऋषियों को सताने वाले เป็นมนุษย์สุดประเสริฐ",
    "0 1 12 123 1234 12345 3.14159e-10 0xFF 1,000,000 ٠١٢٣",
    "a  b   c    d\te\t\tf \n g\n\nh\r\ni   ",
    "😀👨‍👩‍👧‍👦🏳️‍🌈👍🏽 ½ ™ → ∑ €",
    "for (int i = 0; i < n; ++i) { x[i] *= 2; }  // \"quoted\" \\n 'c' $HOME @user #tag",
    "def f(self, *args, **kwargs):\n    return {\"key\": [None, True, -1.5]}\n",
    "<div class=\"a\">&amp;</div> https://example.org/path?q=1&r=%20",
};

std::string quoted(std::string_view text) {
    return boost::json::serialize(boost::json::string_view{text.data(), text.size()});
}

/// The token in which two texts begin to differ, as words; `pieces` is what the ids print.
std::string blame(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                  std::string_view pieces, std::string_view expected) {
    const auto differ =
        std::mismatch(pieces.begin(), pieces.end(), expected.begin(), expected.end());
    auto left = static_cast<std::size_t>(differ.first - pieces.begin());
    for (const std::int32_t id : ids) {
        const std::size_t bytes = tokenizer.token_piece(id).size();
        if (left < bytes || (left == 0 && bytes == 0))
            return "token " + std::to_string(id) + " " + quoted(tokenizer.token_text(id));
        left -= bytes;
    }
    return "the end of the text, which has no token";
}

/// @return whether every character of the line is in the vocabulary
bool check_line(const Tokenizer& tokenizer, std::string_view line) {
    const auto ids = tokenizer.encode(line);
    const auto expected = tokenizer.canonical(line);
    if (!ids || !expected)
        throw base::ModelError{"tokenizer self-test: " + quoted(line) + " cannot be tokenized: " +
                               (ids ? expected.error() : ids.error()).message()};
    std::string pieces;
    for (const std::int32_t id : *ids) {
        if (id == tokenizer.special().unk) return false;
        pieces.append(tokenizer.token_piece(id));
    }
    if (pieces != *expected)
        throw base::ModelError{
            "tokenizer self-test: expected the tokens of " + quoted(*expected) +
            " to print as that text, found " + quoted(pieces) + ", which differs from " +
            blame(tokenizer, *ids, pieces, *expected) +
            " on; tokens, merges and token types of the file do not fit together. Convert or "
            "download the model again"};
    return true;
}

void check_mark(const Tokenizer& tokenizer, std::int32_t id) {
    const TokenType type = tokenizer.token_type(id);
    if (type != TokenType::control && type != TokenType::user_defined) return;
    const std::string_view text = tokenizer.token_text(id);
    const auto ids = tokenizer.encode(text, {.parse_special = true});
    if (!ids || ids->size() != 1 || ids->front() != id)
        throw base::ModelError{"tokenizer self-test: expected the text " + quoted(text) +
                               " of token " + std::to_string(id) + " to become that token, found " +
                               std::to_string(ids ? ids->size() : 0) +
                               " others; the file's special tokens are damaged"};
}

}  // namespace

void check_round_trip(const Tokenizer& tokenizer) {
    bool is_first = true;
    for (const std::string_view line : kProbe) {
        if (!check_line(tokenizer, line) && is_first)
            throw base::ModelError{"tokenizer self-test: expected a token for every letter of " +
                                   quoted(line) + ", found unknown ones"};
        is_first = false;
    }
    if (tokenizer.special().bos != kNoToken) check_mark(tokenizer, tokenizer.special().bos);
    for (const std::int32_t id : tokenizer.eog_ids()) check_mark(tokenizer, id);
}

}  // namespace text
