#pragma once

#include "daemon/base/error.hpp"
#include "daemon/base/output_rules.hpp"
#include "daemon/base/token_rules.hpp"
#include "daemon/text/grammar/reply_form.hpp"
#include "daemon/text/text_range.hpp"

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace reply {
struct Format;
}

namespace server {

/// What one token added to the visible text.
struct Decoded {
    std::string text;      ///< whole characters only; never the beginning of a possible stop string
    bool stopped = false;  ///< a stop string is complete: `text` ends before it, nothing follows
};

/// The text of one generated sequence. Thread: the one that uses it.
class TextStream {
public:
    virtual ~TextStream() = default;
    [[nodiscard]] virtual Decoded push(std::int32_t token) = 0;
    /// What was held back, once no token follows. Incomplete characters become U+FFFD.
    [[nodiscard]] virtual std::string flush() = 0;
};

struct TextStreamOptions {
    std::vector<std::string> stop;  ///< stop strings
    bool include_stop = false;      ///< the stop string itself is part of the text
    bool render_special = false;    ///< control tokens print as the model file spells them
    bool at_text_start = false;     ///< the first token begins a reply, rather than going on a text
    /// Control tokens that this format's marks are made of print too: for whoever reads the reply.
    const reply::Format* marks_of = nullptr;
};

/// A chat prompt, or why there is none.
struct RenderedChat {
    /// base::Errc::template_failed where the template refused the conversation, template_broken
    /// where it could not be rendered.
    boost::system::error_code error;
    std::string text;  ///< the prompt, without the BOS that encode() adds; with template_failed a
                       ///< sentence for the client, with template_broken one for the operator
    std::vector<text::TextRange> plain = {};  ///< where users typed what control tokens look like
    const reply::Format* format = nullptr;  ///< how the model writes reasoning and calls after it
    bool in_reasoning = false;              ///< the prompt leaves the reasoning open
};

/// What the tokens of a reply must follow, or why they cannot.
using BoundReply = std::variant<std::shared_ptr<const base::TokenRules>, grammar::Refusal>;

/// Everything the server needs to know about a model's text. Implemented by daemon/app over
/// daemon/text, and by a fake in the tests.
///
/// Every method may be called from any thread at once.
class TextCodec {
public:
    virtual ~TextCodec() = default;

    /// @param add_special    BOS and EOS, where the model wants them
    /// @param parse_special  the texts of control tokens become those tokens (rendered chats)
    [[nodiscard]] virtual base::Result<std::vector<std::int32_t>> encode(
        std::string_view text, bool add_special, bool parse_special) const = 0;

    /// The tokens of a rendered chat: as encode() with both options, but what users typed becomes
    /// no control token.
    [[nodiscard]] virtual base::Result<std::vector<std::int32_t>> encode_chat(
        const RenderedChat& chat) const {
        return encode(chat.text, true, true);
    }

    /// Compiles what a request demands of its reply into rules for tokens; the same demand is compiled
    /// once. May take long: never called on the io thread.
    /// @param rules  not free
    [[nodiscard]] virtual BoundReply bind_reply(const base::OutputRules& /*rules*/,
                                                const grammar::ReplyForm& /*form*/) const {
        return grammar::Refusal{grammar::Refusal::Part::model, 0,
                                "Replies of this model cannot be bound to a form."};
    }

    /// Renders the model's chat template. May take long: never called on the io thread.
    /// @param inputs  the template's variables: messages[], tools[] or null,
    ///                add_generation_prompt, and what the request adds (enable_thinking, …)
    [[nodiscard]] virtual RenderedChat render_chat(const boost::json::object& inputs) const = 0;

    [[nodiscard]] virtual std::unique_ptr<TextStream> start(TextStreamOptions options) const = 0;

    /// The bytes a token prints as; "" for ids out of range, and for control tokens unless
    /// `render_special`. The view lives as long as the codec.
    [[nodiscard]] virtual std::string_view piece(std::int32_t token, bool render_special) const = 0;

    [[nodiscard]] virtual std::int32_t vocab_size() const = 0;
    /// The end-of-generation set, ascending.
    [[nodiscard]] virtual std::span<const std::int32_t> eog_ids() const = 0;
};

}  // namespace server
