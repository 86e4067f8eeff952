#pragma once

#include "file.hpp"
#include "parse.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gguf {

/// One file of a model with its parsed header, which borrows from the mapping.
struct Part {
    MappedFile file;
    Header header;
};

/// The metadata keys split.no, split.count and split.tensors.count, range-checked.
struct SplitInfo {
    std::uint32_t index = 0;                   // zero-based
    std::uint32_t count = 1;                   // 1: not split
    std::optional<std::uint32_t> num_tensors;  // of all parts together
};

/// @throws sdk::Error{ASSAY_CORRUPT}
[[nodiscard]] SplitInfo read_split_info(const Header& header, std::string_view name);

/// The path of part `index` (zero-based) of `count`: "<prefix>-00001-of-00003.gguf".
[[nodiscard]] std::string part_path(std::string_view prefix, std::uint32_t index,
                                    std::uint32_t count);

/// What precedes "-0000k-of-0000n.gguf" in `path` for this part; nullopt when the path does not end
/// so.
[[nodiscard]] std::optional<std::string> part_prefix(std::string_view path, const SplitInfo& split);

/// Opens a model: the file at `path`, or, when its metadata says that it is one of several parts,
/// all of them in order. Any part may be named; the others are looked for beside it, under names
/// made from `path` alone. Metadata decides: a whole file whose name looks like a part is whole.
///
/// Every part is known to exist before any other is parsed. Afterwards the parts agree in number
/// and order, tensor names are unique across them, and the total is the declared one.
///
/// @throws sdk::Error  IO: a file is missing (all missing parts are listed) or unreadable;
///                     CORRUPT: a header or the set of parts contradicts itself
[[nodiscard]] std::vector<Part> open_parts(const std::string& path, const Limits& limits = {});

/// Opens the parts of one model whose paths are all given, in any order and under any names, and
/// puts them in order. Checks what open_parts() does; all absent numbers are listed.
[[nodiscard]] std::vector<Part> assemble_parts(const std::vector<std::string>& paths,
                                               const Limits& limits = {});

}  // namespace gguf
