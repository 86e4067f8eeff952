#pragma once

#include "daemon/base/metadata.hpp"
#include "daemon/text/tokenizer.hpp"

#include <boost/json/fwd.hpp>

#include <string_view>

namespace text {

/// What a template wants of the messages it is given. The defaults suit most templates;
/// probe_template() finds out.
struct TemplateTraits {
    bool content_parts = false;       ///< reads content that is a list of parts
    bool content_text = true;         ///< reads content that is a string; else it is made a list
    bool object_arguments = true;     ///< wants tool call arguments as an object, not as JSON text
    bool null_content = false;        ///< shows tool calls only beside content null, not ""
    bool nine_character_ids = false;  ///< refuses tool call ids of another length
    bool system_role = true;          ///< accepts a system message
    bool shows_tools = true;          ///< describes the tools it is given
    bool shows_tool_calls = true;     ///< repeats earlier tool calls
    bool shows_tool_results = true;
    bool has_enable_thinking = false;  ///< enable_thinking changes the end of the prompt
    bool writes_bos = false;           ///< begins the prompt with the BOS token's text
};

/// The messages of an OpenAI-style request as a template with these traits can read them:
/// - role developer becomes system;
/// - content that is a list of texts becomes their concatenation, without a separator, unless the
///   template reads lists; a list with anything but texts is left to the template;
/// - missing or null content becomes "", or null where null_content asks for it;
/// - tool call arguments become an object (a text that is no JSON object is left), or JSON text;
/// - `reasoning` becomes reasoning_content;
/// - tool call ids become nine characters where the template insists, the same one everywhere.
/// Order and spelling of everything else are kept.
/// @param messages  array of objects; items that are no objects are left as they are
[[nodiscard]] boost::json::array adapt_messages(const boost::json::array& messages,
                                                const TemplateTraits& traits);

struct TemplateChoice {
    std::string_view source;
    std::string_view name;  ///< where it is from, for logs: a metadata key, "override" or "chatml"
};

/// The template of a request: the operator's, else the model's for tools when there are tools and
/// it has one, else the model's, else ChatML. Views into the arguments.
/// @param override_source  "" for none
[[nodiscard]] TemplateChoice choose_template(const base::Metadata& metadata,
                                             std::string_view override_source, bool has_tools);

/// A rendered chat without the BOS at its start and the EOS at its end that encode() with
/// add_special will add, so that each is there once whether or not the template writes it.
[[nodiscard]] std::string_view without_added_tokens(std::string_view rendered,
                                                    const Tokenizer& tokenizer);

}  // namespace text
