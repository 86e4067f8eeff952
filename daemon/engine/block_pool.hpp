#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/base/error.hpp"

namespace engine {

/// One page of the KV cache, the same in every layer.
enum class BlockId : std::int32_t {};

/// Hands out KV cache blocks and counts how many sequences hold each one.
///
/// A block is block_size consecutive token slots, in every layer at once, so one id is enough to
/// address a token's keys and values everywhere. Host bookkeeping only.
///
/// Thread: engine. Cost: O(n) in the blocks moved; no allocation after construction.
class BlockPool {
public:
    /// @param num_blocks  blocks that fit the memory budget; at least 1, checked at start
    explicit BlockPool(std::int32_t num_blocks);

    /// Takes out.size() blocks, all or none.
    /// @param out  [n] receives the ids, each now held once
    /// @return     Errc::kv_exhausted when fewer than n are free; the pool is then unchanged
    [[nodiscard]] base::Result<void> take(std::span<BlockId> out) noexcept;

    /// One more holder, for a prefix shared between sequences. The block must be held already.
    void share(BlockId id) noexcept;

    /// One holder fewer; the last one frees the block.
    void drop(BlockId id) noexcept;

    [[nodiscard]] std::int32_t num_free() const noexcept { return static_cast<std::int32_t>(free_.size()); }
    [[nodiscard]] std::int32_t num_blocks() const noexcept {
        return static_cast<std::int32_t>(holders_.size());
    }

private:
    std::vector<BlockId> free_;          // used as a stack, so take and drop are O(1) per block
    std::vector<std::int32_t> holders_;  // [num_blocks]
};

}  // namespace engine
