#pragma once

#include "daemon/text/chat_request.hpp"
#include "daemon/text/reply/format.hpp"

#include <boost/json/fwd.hpp>

namespace text {

/// The format in which the model is to write calls when a template of this format is given tools that
/// it does not show: its own, or the most common one where it has none.
[[nodiscard]] const reply::Format& spelled_format(const reply::Format& format);

/// The messages for a template that passes over tools, calls or results: what it does not show becomes
/// text that it does.
/// - tools it does not describe are described at the end of the system message, or of the first message
///   where the template has no system role;
/// - calls it does not repeat become the end of the content of their message;
/// - results it does not show become messages of the user.
/// @param messages  after adapt_messages()
/// @param tools     array in chat shape; may be empty
/// @param format    spelled_format() of the template's
[[nodiscard]] boost::json::array spell_out_tools(boost::json::array messages,
                                                 const boost::json::array& tools,
                                                 const TemplateTraits& traits,
                                                 const reply::Format& format);

}  // namespace text
