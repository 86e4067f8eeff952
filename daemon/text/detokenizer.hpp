#pragma once

#include "daemon/text/tokenizer.hpp"
#include "daemon/text/utf8.hpp"

#include <cstdint>
#include <string>

namespace text {

struct DetokenizerOptions {
    bool render_special = false;  ///< print control tokens, for parsers of structured replies
    /// The first token is the first of a text or of a chat message: for models that put a space
    /// before every text (Tokenizer::add_space_prefix), one leading space is dropped. Leave it off
    /// where tokens continue a text, as in a raw completion.
    bool at_text_start = false;
};

/// Turns the tokens of one stream into text as they come, each character as soon as it is whole.
///
/// Tokens print as bytes and may end inside a character, so up to 3 bytes are held back. Ill-formed
/// bytes become U+FFFD, one for each maximal subpart. Belongs to one stream, and to one thread at a
/// time; the tokenizer must outlive it.
class Detokenizer {
public:
    explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {})
        : tokenizer_{&tokenizer},
          render_special_{options.render_special},
          drop_space_{options.at_text_start && tokenizer.add_space_prefix()} {}

    /// @return well-formed UTF-8 that this token completes; often ""
    [[nodiscard]] std::string push(std::int32_t id) { return push(id, render_special_); }
    /// The same, with a word of its own on whether this one prints where it is a control token.
    [[nodiscard]] std::string push(std::int32_t id, bool render_special);

    /// Ends the stream: U+FFFD for an unfinished character, else "".
    [[nodiscard]] std::string flush() { return stream_.flush(); }

private:
    const Tokenizer* tokenizer_;
    Utf8Stream stream_;
    bool render_special_;
    bool drop_space_;  // until the first byte has been printed
};

}  // namespace text
