#pragma once

#include "daemon/text/reply/format.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reply {

struct ParserOptions {
    /// The tools of the request. Without any no call is looked for: what looks like one is text.
    std::shared_ptr<const Tools> tools = {};
    bool in_reasoning = false;  ///< the prompt leaves the reasoning open (opens_reasoning)
    /// A call of a tool that is not declared is text. Off: it is reported as it is.
    bool declared_only = false;
    /// A call of a declared tool counts although the reasoning was not closed, as models do forget
    /// to. Off: it is reasoning.
    bool calls_in_reasoning = true;
};

/// Reads a reply as it comes: reasoning, content and tool calls.
///
/// What the events say in total does not depend on how the text is cut into pieces. Text is held
/// back only where it may turn out to be a mark, white space beside one, or a call whose name is
/// not known yet; memory is bounded by kMaxHeldBytes. White space next to a mark belongs to the
/// mark and is dropped (at most the last 64 bytes of it before one). Nothing that a model writes
/// throws: what is no call is given back as text, and a call that breaks off is call_failed.
///
/// Belongs to one stream. A server creates one a choice, feeds what TextStream gives with control
/// tokens rendered and the end-of-generation token left out, and makes of each event its protocol's
/// delta:
///
///     reply::Parser parser{format, {.tools = tools, .in_reasoning = opens_reasoning(format,
///     prompt)}}; parser.feed(delta, events);  // for each delta; then use and clear the events
///     parser.finish(events);       // no text follows
class Parser {
public:
    /// @param format  of formats(), which live as long as the program
    explicit Parser(const Format& format, ParserOptions options = {});
    Parser(const Parser&) = delete;  // its parts refer to each other
    Parser& operator=(const Parser&) = delete;

    /// Reads on. Events are appended; neighbouring deltas of one kind are one event.
    void feed(std::string_view text, std::vector<Event>& events);
    /// Ends the reply: what was held back, and call_failed for a call that is not whole.
    void finish(std::vector<Event>& events);

    /// Calls begun so far, failed ones included.
    [[nodiscard]] std::size_t num_calls() const noexcept { return calls_.num_calls(); }
    /// Whether what was fed last belongs to the reasoning, as far as that is known.
    [[nodiscard]] bool in_reasoning() const noexcept { return mode_ == Mode::reasoning; }

private:
    void run(std::vector<Event>& events);
    [[nodiscard]] bool read_text(std::vector<Event>& events);
    [[nodiscard]] Found read_marks();
    [[nodiscard]] bool read_call(std::vector<Event>& events);
    [[nodiscard]] bool skip_broken_call();
    void begin_call(std::unique_ptr<CallReader> reader, std::size_t mark_bytes);
    void give_back(std::vector<Event>& events);
    /// @param at  where the text stands in the reply; what white space is held stands before it
    void say(std::string_view text, std::size_t at, std::vector<Event>& events);
    void hold_space(std::string_view space, std::vector<Event>& events);

    const Format& format_;
    ParserOptions options_;
    Cursor in_;
    Calls calls_;
    std::unique_ptr<CallReader> reader_;  // of the call that is being read
    Mode mode_;
    std::string space_;         // white space that is dropped should a mark follow
    bool after_mark_ = false;   // white space here is dropped
    bool is_fresh_ = true;      // nothing but white space so far
    bool has_content_ = false;  // content has been said
    bool after_call_ = false;   // nothing but white space since a call
    bool skipping_ = false;     // to the end of a failed call
};

}  // namespace reply
