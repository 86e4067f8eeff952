#pragma once

#include "abi/common.h"
#include "parse.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gguf {

/// First block of `data` with an Inf or NaN: in the values of a plain float type (whose blocks are
/// single elements), in a scale of a block type. Integer types have none.
/// @param data  whole blocks of `type`
[[nodiscard]] std::optional<std::uint64_t> find_non_finite(const TensorType& type,
                                                           std::string_view data) noexcept;

/// Looks at every float weight and every block scale of a file, for an operator who does not trust
/// it: one such value is enough to turn each answer into noise.
///
/// @param lanes  share the work; null to do it alone
/// @throws sdk::Error{ASSAY_CORRUPT} with file, tensor, block and byte offset of the first one
/// Cost: reads the whole file.
void check_weights(const Header& header, std::span<const std::byte> file, std::string_view name,
                   const assay_lanes* lanes);

}  // namespace gguf
