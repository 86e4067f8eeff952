#pragma once

#include <cstdint>
#include <memory>

#include "daemon/config/config.hpp"
#include "daemon/model/model_file.hpp"
#include "daemon/text/tokenizer.hpp"

namespace app {

/// The tokenizer of a model file, proven: it fits the model, and a built-in text survives the way
/// to tokens and back.
///
/// @param vocab_size  rows of the model's embedding; there may be more of them than tokens
/// Throws base::ModelError or base::ConfigError naming the file, the key, expected and found.
[[nodiscard]] std::unique_ptr<text::Tokenizer> open_tokenizer(const model::ModelFile& file,
                                                              const config::Config& config,
                                                              std::int64_t vocab_size);

}  // namespace app
