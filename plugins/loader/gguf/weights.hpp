#pragma once

#include "abi/common.h"
#include "parse.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace gguf {

/// First block of `data` with an Inf or NaN: in the values of a plain float type (whose blocks are
/// single elements), in a scale of a block type. Integer types have none.
/// @param data  whole blocks of `type`
[[nodiscard]] std::optional<std::uint64_t> find_non_finite(const TensorType& type,
                                                           std::string_view data) noexcept;

/// One file of the model that is looked at.
struct WeightSource {
    const Header* header;
    std::span<const std::byte> file;  ///< the whole file; pages are fetched ahead of their use
    std::string_view name;            ///< for messages
};

/// Looks at every float weight and every block scale: one that is no number turns each answer into
/// noise, and nothing else shows it. Refuses matrices that hold nothing but zeros too: a download with
/// holes leaves them, and a model may go on talking without one.
///
/// @param lanes     share the work; null to do it alone
/// @param on_bytes  how many bytes more were looked at; from any lane, at the same time
/// @throws sdk::Error{ASSAY_CORRUPT} with file, tensor, byte, row, block and value of the first
/// one, and
///         the number of tensors that have any
/// Cost: reads all of the files, at the speed of the disk or, where they are cached, of memory.
void check_weights(std::span<const WeightSource> sources, const assay_lanes* lanes,
                   const std::function<void(std::uint64_t bytes)>& on_bytes = {});

}  // namespace gguf
