#pragma once

// What this image knows about a ggml tensor type: its block, how to decode it, how to check it.

#include "abi/quant.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace ggml {

/// Decodes `num_blocks` consecutive blocks to f32, element by element as the format defines it:
/// every product and sum is rounded to f32 once, in the order of the definition. Bit-exact.
/// @param blocks  [num_blocks * block_bytes], any alignment
/// @param out     [num_blocks * block_cols]
using DecodeFn = void (*)(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);

/// What the scan checks of a block: the fp16 fields at these offsets (-1: there is none), or what a
/// function says. Integers have neither.
struct ScaleCheck {
    std::int16_t scale_at = -1, min_at = -1;
    bool (*is_bad)(const std::uint8_t* block) = nullptr;
};

/// One row of the table of formats (formats.cpp).
struct Format {
    assay_quant_format abi;  // id, block_cols, block_bytes, source
    DecodeFn decode;
    ScaleCheck check;

    /// True when the block holds a scale (plain types: a value) that is NaN or infinite, or that no
    /// writer emits.
    [[nodiscard]] bool is_bad(const std::uint8_t* block) const noexcept;
    [[nodiscard]] std::int64_t row_bytes(std::int64_t k) const noexcept {
        return k / abi.block_cols * abi.block_bytes;
    }
};

/// Every format, in the order of the ggml type ids.
[[nodiscard]] std::span<const Format> formats() noexcept;

/// The same as the ABI wants them: [formats().size()] pointers.
[[nodiscard]] const assay_quant_format* const* abi_formats() noexcept;

/// Null when there is no such format.
[[nodiscard]] const Format* find_format(std::string_view id) noexcept;

}  // namespace ggml
