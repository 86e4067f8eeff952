#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gguf {

/// One tensor type of the container: how many elements share a block, and its size. A row is a
/// whole number of blocks; blocks lie back to back and never span rows.
struct TensorType {
    const char* format;  // the format id that quant plugins declare: "q4_k"; null: not a type
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
};

/// The type with this id, or null when the id is unknown, was removed, or belongs to a fork.
/// Source: ggml tensor types, ids 0 to 42; sizes are those of the C structs (Q8_1 has 36 bytes).
[[nodiscard]] const TensorType* find_type(std::uint32_t id) noexcept;
/// The type with this format id ("q4_k"), or null.
[[nodiscard]] const TensorType* find_type(std::string_view format) noexcept;
/// The id of a type that find_type gave.
[[nodiscard]] std::uint32_t type_id(const TensorType& type) noexcept;

/// Words for an id that find_type refuses: what it is known as elsewhere, and what to do.
[[nodiscard]] std::string describe_unknown_type(std::uint32_t id);

}  // namespace gguf
