#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace text {

/// The character (UTF-8) that stands for a byte in byte-level BPE.
///
/// Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points; the other 68, in
/// increasing order, are U+0100, U+0101, ...
/// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, the
/// published encoder's byte table.
[[nodiscard]] std::string_view byte_to_character(unsigned char byte) noexcept;

/// The bytes of a byte-mapped text. A character that stands for no byte is kept as it is.
[[nodiscard]] std::string unmap_bytes(std::string_view mapped);

}  // namespace text
