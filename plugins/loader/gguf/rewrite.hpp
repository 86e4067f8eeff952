#pragma once

#include "split.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gguf {

/// Called now and then with the bytes that were written and the bytes that will have been.
using RewriteProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes the parts of a model as one file: the first part's metadata without split.*, and every
/// tensor's bytes as they were, part after part. Nothing appears at `out` unless all of it did.
///
/// @param parts  one part, whose siblings are found beside it, or all of them in any order under
///               any names
/// @throws sdk::Error  as open_parts(), and IO: `out` exists, disk full
void merge(const std::string& out, const std::vector<std::string>& parts,
           const RewriteProgress& on_progress = {});

/// How a model is cut. Exactly one is not 0.
struct SplitRule {
    std::uint32_t num_parts = 0;  ///< about equal in bytes; at most one a tensor
    std::uint64_t max_bytes = 0;  ///< of one part file, header included
};

/// Cuts a model between tensors into "<prefix>-0000k-of-0000n.gguf". The first part has all
/// metadata, the others split.* and the alignment; tensors keep their order and bytes, so merging
/// gives the same file again. A model that is in parts already is cut anew.
///
/// @return the paths written, in order
/// @throws sdk::Error  INVALID: the rule cannot be met (a tensor larger than max_bytes; more parts
///                     than tensors); IO: a file exists, disk full; otherwise as open_parts()
std::vector<std::string> split(const std::string& path, const std::string& prefix,
                               const SplitRule& rule, const RewriteProgress& on_progress = {});

}  // namespace gguf
