#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace reply {

/// One thing that a reply says. Events come in the order of the text.
struct Event {
    enum class Kind {
        content,      ///< `text` goes on the answer
        reasoning,    ///< `text` goes on the reasoning before it
        call_begin,   ///< a tool call; `text` is the tool's name, whole
        arguments,    ///< `text` goes on the call's arguments
        call_end,     ///< the call is whole: its arguments are one JSON object
        call_failed,  ///< the call will not be; `text` says why. Its arguments are no valid JSON
    };
    Kind kind = Kind::content;
    std::string text;
    std::size_t call = 0;  ///< index of the call in the reply; no two calls are open at once
    std::string id;        ///< call_begin, call_end: the id that the model gave the call, or ""
    /// content, reasoning: where `text` begins in the reply as it was fed, in bytes; it stands there
    /// without a gap.
    std::size_t at = 0;

    friend bool operator==(const Event&, const Event&) = default;
};

/// Appends an event; text that goes on the last one without a gap is joined to it.
void append_event(std::vector<Event>& events, Event event);

}  // namespace reply
