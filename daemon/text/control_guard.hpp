#pragma once

#include "daemon/text/tokenizer.hpp"

#include <boost/json/fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// Keeps what users typed from becoming control tokens.
///
/// A rendered chat is one text, in which a user's "<|im_end|>" would end the turn. So these texts
/// are replaced by placeholders before the template sees them, and put back into the rendered
/// text as stretches that are to be read as plain text.
///
/// For one request; one thread.
class ControlGuard {
public:
    explicit ControlGuard(const Tokenizer& tokenizer) : tokenizer_{&tokenizer} {}

    /// Replaces the control tokens' texts in all strings and keys of a value, except under "role"
    /// and "type"; in what an assistant said, the marks of reasoning stay, since templates look for
    /// them there.
    void protect(boost::json::value& value);

    struct Restored {
        std::string text;
        std::vector<TextRange> plain;  ///< for EncodeOptions
    };
    /// The rendered text as it was meant. @return nothing when the template changed a placeholder
    [[nodiscard]] std::optional<Restored> restore(std::string_view rendered) const;

    /// How many texts were replaced.
    [[nodiscard]] std::size_t num_protected() const noexcept { return texts_.size(); }

private:
    void protect_value(boost::json::value& value, bool from_assistant);
    /// @return whether the text changed
    [[nodiscard]] bool protect_text(std::string_view text, bool from_assistant, std::string& out);

    const Tokenizer* tokenizer_;
    std::string nonce_;               // decimal: letters might have their case changed
    std::vector<std::string> texts_;  // by index of the placeholder
};

}  // namespace text
