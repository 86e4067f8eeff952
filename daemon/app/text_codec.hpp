#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/metadata.hpp"
#include "daemon/server/text_codec.hpp"
#include "daemon/text/tokenizer.hpp"

namespace text {
class TemplateWorker;
}

namespace app {

/// The operator's template file; "" when `path` is empty.
/// Throws base::ConfigError naming model.chat_template_file when it cannot be read, is empty or too long.
[[nodiscard]] std::string read_chat_template(const std::filesystem::path& path);

/// The server's view of a model's text, over daemon/text: tokenizer, detokenizer, stop strings, and
/// the chat template of the model file (or of the operator's file), rendered by the worker.
///
/// @param worker  may be null: chats are then refused. Must outlive the codec.
/// @param warn    told once what an operator should know of the template
/// Throws base::ConfigError when the operator's template file cannot be read.
[[nodiscard]] std::shared_ptr<const server::TextCodec> make_text_codec(
    const text::Tokenizer& tokenizer, const base::Metadata& metadata,
    const std::filesystem::path& chat_template_file, text::TemplateWorker* worker,
    const std::function<void(std::string_view)>& warn = {});

}  // namespace app
