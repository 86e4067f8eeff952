#pragma once

#include "daemon/base/error.hpp"
#include "daemon/base/metadata.hpp"
#include "daemon/text/special_splitter.hpp"
#include "daemon/text/vocabulary.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// Why a text could not be tokenized. A client error, each of them.
enum class Errc {
    text_too_long = 1,  ///< more than kMaxTextBytes
    regex_limit,        ///< the pre-tokenizer gave up on this text
};

const boost::system::error_category& error_category() noexcept;

inline boost::system::error_code make_error_code(Errc e) noexcept {
    return {static_cast<int>(e), error_category()};
}

/// Texts beyond this are refused before any work is done.
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

struct EncodeOptions {
    /// BOS, EOS and SEP, where the model wants them. A BOS that begins the text is not repeated.
    bool add_special = false;
    bool parse_special = false;  ///< the texts of control tokens become those tokens
    /// Where they do not even so: what users typed. Ascending, apart from each other.
    std::span<const TextRange> plain = {};
};

struct TokenizerOptions {
    /// Apply NFC where the model's own tokenizer does (Qwen2 to Qwen3). Off: bit parity with
    /// implementations that do not.
    bool normalize_nfc = true;
    /// For BPE models whose file names no pre-tokenizer, or one that is not known here: a name of
    /// pretokenizer_names(). "": such a file is refused.
    std::string_view pre_tokenizer = {};
};

/// What every kind of tokenizer has, worked out from the metadata.
struct TokenizerParts {
    Vocabulary vocabulary;
    SpecialIds special;
    std::vector<std::int32_t> eog_ids;  // ascending
    std::vector<std::int32_t> suppressed_ids;
    bool add_bos = false;
    bool add_eos = false;
    bool add_sep = false;
    bool add_space_prefix = false;
    SpecialSplitter splitter;
};

/// A model's tokenizer: text to token ids, and the bytes of each id.
///
/// Immutable after construction: every method may be called from any thread at once.
class Tokenizer {
public:
    virtual ~Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    /// Token ids of a text. Invalid UTF-8 does not fail: byte-level BPE reads each byte that
    /// starts no sequence as U+FFFD, SPM as that byte's token. O(n log n) in the text's bytes.
    /// @return [num_tokens]; Errc::text_too_long, Errc::regex_limit
    [[nodiscard]] base::Result<std::vector<std::int32_t>> encode(std::string_view text,
                                                                 EncodeOptions options = {}) const;

    /// What the pieces of a text's tokens join to when nothing in it is unknown to the vocabulary:
    /// the text itself, or what the model's own normalization makes of it.
    /// @param text  read as encode() does without options
    [[nodiscard]] base::Result<std::string> canonical(std::string_view text) const;

    /// The control tokens' texts in a text, as encode() with parse_special would find them.
    [[nodiscard]] std::vector<TextRange> find_control(std::string_view text) const;

    /// The bytes that a token prints as: not text, since one character may span several tokens.
    /// Control and unknown tokens print only with render_special; unused ones, and ids out of
    /// range, print nothing. The view lives as long as the tokenizer.
    [[nodiscard]] std::string_view token_piece(std::int32_t id,
                                               bool render_special = false) const noexcept {
        return parts_.vocabulary.piece(id, render_special);
    }

    /// The token's text as the model file spells it.
    [[nodiscard]] std::string_view token_text(std::int32_t id) const noexcept {
        return parts_.vocabulary.text(id);
    }
    [[nodiscard]] TokenType token_type(std::int32_t id) const noexcept {
        return parts_.vocabulary.type(id);
    }
    /// The id of a token by its text in the model file, or kNoToken.
    [[nodiscard]] std::int32_t find(std::string_view token_text) const noexcept {
        return parts_.vocabulary.find(token_text);
    }

    [[nodiscard]] std::int32_t vocab_size() const noexcept { return parts_.vocabulary.size(); }
    [[nodiscard]] const SpecialIds& special() const noexcept { return parts_.special; }
    /// The end-of-generation set, ascending: any of these ends a reply.
    [[nodiscard]] const std::vector<std::int32_t>& eog_ids() const noexcept {
        return parts_.eog_ids;
    }
    [[nodiscard]] bool is_eog(std::int32_t id) const noexcept;
    /// Ids that are never to be sampled (tokenizer.ggml.suppress_tokens).
    [[nodiscard]] const std::vector<std::int32_t>& suppressed_ids() const noexcept {
        return parts_.suppressed_ids;
    }
    [[nodiscard]] bool add_bos() const noexcept { return parts_.add_bos; }
    [[nodiscard]] bool add_eos() const noexcept { return parts_.add_eos; }
    /// Whether a space is put before the text, so that one is to be dropped when decoding.
    [[nodiscard]] bool add_space_prefix() const noexcept { return parts_.add_space_prefix; }
    /// The text of BOS and EOS as the chat template gets them; "" for none.
    [[nodiscard]] std::string_view bos_text() const noexcept {
        return token_text(parts_.special.bos);
    }
    [[nodiscard]] std::string_view eos_text() const noexcept {
        return token_text(parts_.special.eos);
    }

protected:
    explicit Tokenizer(TokenizerParts parts);

    /// Appends the ids of a stretch of text between special tokens.
    /// @param fragment  not empty; holds no special token that was to be parsed
    virtual boost::system::error_code encode_fragment(std::string_view fragment,
                                                      std::vector<std::int32_t>& ids) const = 0;

    /// canonical() of a stretch of text between special tokens.
    [[nodiscard]] virtual base::Result<std::string> canonical_fragment(
        std::string_view fragment) const = 0;

    [[nodiscard]] const Vocabulary& vocabulary() const noexcept { return parts_.vocabulary; }

private:
    TokenizerParts parts_;
};

/// The tokenizer that a model file describes (tokenizer.ggml.*).
///
/// Throws base::ModelError naming key, expected and found: a model or pre-tokenizer that is not
/// known, a BPE model without tokenizer.ggml.pre (guessing it would silently cost quality) where
/// the options name none, and everything Vocabulary refuses. Throws base::ConfigError when the
/// options name a pre-tokenizer that is not known, or another than the file's.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const base::Metadata& metadata,
                                                        TokenizerOptions options = {});

}  // namespace text

template <>
struct boost::system::is_error_code_enum<text::Errc> : std::true_type {};
