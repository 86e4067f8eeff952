#pragma once

#include "daemon/text/regex.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// What the texts of a BPE vocabulary are spelled in, and merges begin with.
enum class Spelling {
    byte_map,    ///< one character for each byte; merges begin with bytes
    underscore,  ///< U+2581 for each space; merges begin with characters
    plain,       ///< as it is, white space between words left out; merges begin with characters
};

/// How a value of tokenizer.ggml.pre splits text into the pieces that BPE merges within, and what
/// else hangs on that value. A new one is a row of the table in pretokenizer_table.cpp.
struct PretokenizerRow {
    std::string_view pre;
    std::span<const std::string_view>
        patterns;                ///< applied in order, each within the last's pieces
    bool add_bos = false;        ///< unless tokenizer.ggml.add_bos_token says otherwise
    bool ignore_merges = false;  ///< a piece that is a token is taken whole
    bool nfc = false;            ///< the model's own tokenizer normalizes to NFC first
    Spelling spelling = Spelling::byte_map;
    bool whole_newlines = false;  ///< a piece of line feeds that is a token is taken whole
};

/// The whole table, in the order of the groups it is made of.
[[nodiscard]] std::span<const PretokenizerRow> pretokenizer_table();

/// nullptr when there is no such row.
[[nodiscard]] const PretokenizerRow* find_pretokenizer(std::string_view pre);

/// The names of all rows, for messages: "afmoe, bailingmoe, …", in the order of the alphabet.
[[nodiscard]] std::string pretokenizer_names();

/// The compiled patterns of a row. Immutable; any thread.
class Pretokenizer {
public:
    explicit Pretokenizer(const PretokenizerRow& row);

    /// @param text  well-formed UTF-8
    /// @return      Errc::regex_limit; `pieces` is then unspecified
    [[nodiscard]] boost::system::error_code split(std::string_view text,
                                                  std::vector<std::string_view>& pieces) const;

private:
    std::vector<Regex> patterns_;
    std::optional<Regex> long_digit_run_;  // what is refused, where a pattern would be slow on it
};

}  // namespace text
