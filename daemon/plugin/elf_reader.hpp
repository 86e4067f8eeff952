#pragma once

#include "abi/common.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plugin {

/// What an image says about itself, read from the bytes of its file before any of its code runs.
struct ImageFacts {
    std::string id, version, vendor, build;
    std::vector<std::string> kinds;  ///< "quant/1", …
    std::uint32_t abi_major = 0, abi_minor = 0;
    std::string build_id;          ///< GNU build id in hexadecimal, or empty
    std::size_t num_exported = 0;  ///< symbols defined and visible to other images

    /// Empty, or why the image cannot be used: what was found, what was wanted. The fields above
    /// are filled as far as reading got.
    std::string problem;
};

/// Reads the constant `assay_module_entry` of a shared object and checks it against this host's
/// ABI.
///
/// Every offset, count and string is checked against the file: any bytes at all may be given. Works
/// on images whose section headers were stripped. Cost: linear in the file's symbols; no allocation
/// larger than the strings returned.
///
/// Source: System V ABI, "Object Files" and "Dynamic Linking"; the GNU hash section as the GNU
/// linker writes it.
[[nodiscard]] ImageFacts read_image(std::span<const std::byte> file);

/// Whether this daemon knows the interface id ("quant/1").
[[nodiscard]] bool is_known_kind(std::string_view kind) noexcept;

/// "quant" of "quant/1".
[[nodiscard]] std::string_view kind_name(std::string_view kind) noexcept;

}  // namespace plugin
