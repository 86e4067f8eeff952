#pragma once

#include "daemon/text/tokenizer.hpp"

namespace text {

/// Proves that a tokenizer and its vocabulary fit together: a built-in text of many scripts,
/// digits, runs of white space, emoji and code, line by line to tokens and back; and the texts of
/// BOS and of the tokens that end a reply to those tokens.
///
/// Lines with characters that the vocabulary does not have prove nothing and are passed over; the
/// first line (plain English) must not be one. Takes about a millisecond.
/// Throws base::ModelError naming the text, the token and what came back.
void check_round_trip(const Tokenizer& tokenizer);

}  // namespace text
