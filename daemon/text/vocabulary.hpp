#pragma once

#include "daemon/base/metadata.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

/// What tokenizer.ggml.token_type says of a token.
enum class TokenType : std::uint8_t {
    undefined = 0,
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6,
};

/// "No such token", where an id is optional.
inline constexpr std::int32_t kNoToken = -1;

/// Ids with a meaning of their own; kNoToken where the vocabulary has none.
struct SpecialIds {
    std::int32_t bos = kNoToken;
    std::int32_t eos = kNoToken;
    std::int32_t eot = kNoToken;  ///< end of turn
    std::int32_t eom = kNoToken;  ///< end of message (a tool call follows)
    std::int32_t unk = kNoToken;
    std::int32_t sep = kNoToken;
    std::int32_t pad = kNoToken;
    std::int32_t mask = kNoToken;
    std::int32_t fim_pre = kNoToken;
    std::int32_t fim_suf = kNoToken;
    std::int32_t fim_mid = kNoToken;
    std::int32_t fim_pad = kNoToken;
    std::int32_t fim_rep = kNoToken;
    std::int32_t fim_sep = kNoToken;
};

/// How the text of a normal token stands for bytes.
enum class PieceStyle {
    byte_map,    ///< every character stands for one byte (byte-level BPE)
    underscore,  ///< U+2581 stands for a space (SPM)
    plain,       ///< the text is what it says
};

/// The token list of a model: texts, types, scores, and the bytes each token prints as.
///
/// Immutable once its tokenizer is made; any thread.
class Vocabulary {
public:
    /// Reads tokenizer.ggml.tokens, token_type and scores.
    /// Throws base::ModelError on a missing or mistyped key, on arrays shorter than the token
    /// list, on a score that is not a number, and on two ids with one text (both are named).
    Vocabulary(const base::Metadata& metadata, PieceStyle style);

    Vocabulary(Vocabulary&&) noexcept = default;
    Vocabulary& operator=(Vocabulary&&) noexcept = default;

    [[nodiscard]] std::int32_t size() const noexcept {
        return static_cast<std::int32_t>(tokens_.size());
    }
    [[nodiscard]] bool contains(std::int64_t id) const noexcept { return id >= 0 && id < size(); }

    /// The text as the file spells it (byte-mapped, or with U+2581); "" for an id out of range.
    [[nodiscard]] std::string_view text(std::int32_t id) const noexcept;
    [[nodiscard]] TokenType type(std::int32_t id) const noexcept;
    [[nodiscard]] float score(std::int32_t id) const noexcept;
    /// The bytes that the token prints as; "" for an id out of range. See Tokenizer::token_piece.
    [[nodiscard]] std::string_view piece(std::int32_t id, bool render_special) const noexcept;

    /// The id of a token by its text in the file, or kNoToken.
    [[nodiscard]] std::int32_t find(std::string_view text) const noexcept;
    /// The token that stands for a byte: "<0xHH>", or else the one whose text is that byte;
    /// kNoToken.
    [[nodiscard]] std::int32_t byte_token(unsigned char byte) const noexcept;
    [[nodiscard]] std::size_t max_text_bytes() const noexcept { return max_text_bytes_; }

    /// Used while the special tokens are worked out; the piece follows the type.
    void set_type(std::int32_t id, TokenType type);

private:
    void set_piece(std::int32_t id);

    PieceStyle style_;
    std::vector<std::string> tokens_;  // [vocab_size]; never changed, so that ids_ may view them
    std::vector<TokenType> types_;     // [vocab_size]
    std::vector<float> scores_;        // [vocab_size]; float, since SPM breaks ties by it
    std::vector<std::string> pieces_;  // [vocab_size]; bytes, special tokens rendered
    std::unordered_map<std::string_view, std::int32_t> ids_;
    std::size_t max_text_bytes_ = 0;
};

}  // namespace text
