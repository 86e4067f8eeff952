#pragma once

#include "daemon/text/chat_request.hpp"
#include "daemon/text/chat_template.hpp"

#include <string_view>

namespace text {

/// Finds out what a template wants by rendering small conversations with marked words in them.
/// Once per template, at load; about twenty renders. A template that renders nothing at all has
/// the default traits with everything it was to show off.
[[nodiscard]] TemplateTraits probe_template(TemplateWorker& worker, std::string_view source,
                                            std::string_view bos_token, std::string_view eos_token);

}  // namespace text
