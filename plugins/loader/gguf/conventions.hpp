#pragma once

#include "parse.hpp"

#include <string_view>

namespace gguf {

/// Checks the metadata whose meaning the format itself fixes, whatever the architecture, so that
/// nothing behind the loader divides by a zero, indexes past an array or trusts a token id:
///
///   general.architecture   a string of [a-z0-9_-], at most 64 bytes
///   <arch>.*               block_count 1 to 512, expert_count up to 1024, sizes at least 1,
///                          head counts at least 1 (0 only inside a per-layer array),
///                          head_count_kv divides head_count, per-layer arrays of the right length
///   tokenizer.ggml.*       types and lengths of the arrays, ids inside the vocabulary, merges of
///                          two parts, a character map as long as it says
///
/// A key that is absent is not missed here, except general.architecture: which ones a model needs
/// is known to the model code. So is whether the architecture is a known one.
///
/// @param name  the file's name, for messages
/// @throws sdk::Error{ASSAY_CORRUPT} with file, key, byte offset, expected and found
/// Source: GGUF format text, "Standardized key-value pairs".
void check_conventions(const Header& header, std::string_view name);

}  // namespace gguf
