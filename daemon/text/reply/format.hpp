#pragma once

#include "daemon/text/reply/calls.hpp"

#include <memory>
#include <span>
#include <string_view>

namespace reply {

/// A mark that begins something other than text, and who reads what follows it. Marks begin with an
/// ASCII character, and none is the beginning of another of its format.
struct Mark {
    std::string_view text;
    std::unique_ptr<CallReader> (*reader)();
};

/// How a family of models writes reasoning and tool calls. A new one is a row of the table in
/// format.cpp, and a reader where none of the others fits.
struct Format {
    std::string_view name;
    std::string_view template_mark;  ///< what tells the family's chat templates from others
    std::string_view think_open = "<think>";
    std::string_view think_close = "</think>";
    std::span<const Mark> calls = {};
    std::string_view close_mark = {};  ///< ends calls; behind one that was read it says nothing
    std::span<const std::string_view> inner_marks = {};  ///< further marks, inside of calls
    /// Reads a reply that begins with '{', where that may be a call; only declared tools are
    /// called.
    std::unique_ptr<CallReader> (*bare_object)() = nullptr;
    bool has_channels = false;  ///< the marks also say what is reasoning, so they always count
};

/// All formats; the last one has no calls.
[[nodiscard]] std::span<const Format> formats();

/// The format of the replies that a chat template asks for, by the marks the template contains: the
/// first of the table that fits.
[[nodiscard]] const Format& detect_format(std::string_view template_source);

/// Whether a token that prints as `piece` is a mark of the format or a part of one: such tokens
/// have to print where replies are read, control tokens or not.
[[nodiscard]] bool belongs_to_mark(const Format& format, std::string_view piece);

/// Whether a rendered prompt leaves the reasoning open, so that the reply begins inside of it.
[[nodiscard]] bool opens_reasoning(const Format& format, std::string_view prompt);

}  // namespace reply
