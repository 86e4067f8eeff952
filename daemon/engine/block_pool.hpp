#pragma once

#include <cstdint>
#include <functional>
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
/// A block whose content may be wanted again can be kept: without a holder it is then idle instead
/// of free, and is taken only when no free block is left, the one idle for longest first.
///
/// Thread: engine. Cost: O(n) in the blocks moved; no allocation after construction.
class BlockPool {
public:
    /// @param num_blocks  blocks that fit the memory budget; at least 1, checked at start
    explicit BlockPool(std::int32_t num_blocks);

    /// Takes out.size() blocks, all or none; idle ones lose their content.
    /// @param out  [n] receives the ids, each now held once
    /// @return     Errc::kv_exhausted when fewer than n are free or idle; the pool is then unchanged
    [[nodiscard]] base::Result<void> take(std::span<BlockId> out) noexcept;

    /// One more holder. The block is held already, or idle.
    void share(BlockId id) noexcept;

    /// One holder fewer; the last one frees the block, or leaves it idle when it is kept.
    void drop(BlockId id) noexcept;

    /// The block, which is held, becomes idle instead of free when its last holder drops it.
    void keep(BlockId id) noexcept;
    /// The reverse of keep(): an idle block becomes free.
    void forget(BlockId id) noexcept;
    /// Called by take() with each kept block before it is handed out for other content.
    void on_reuse(std::function<void(BlockId)> told) { on_reuse_ = std::move(told); }

    /// Blocks that take() can hand out: free and idle ones.
    [[nodiscard]] std::int32_t num_free() const noexcept {
        return static_cast<std::int32_t>(free_.size()) + num_idle_;
    }
    [[nodiscard]] std::int32_t num_idle() const noexcept { return num_idle_; }
    [[nodiscard]] std::int32_t num_holders(BlockId id) const noexcept { return at(id).holders; }
    [[nodiscard]] std::int32_t num_blocks() const noexcept {
        return static_cast<std::int32_t>(blocks_.size()) - 1;
    }

private:
    struct Block {
        std::int32_t holders = 0;
        bool is_kept = false;
        std::int32_t previous = -1, next = -1;  // in the ring of idle blocks
    };

    [[nodiscard]] Block& at(BlockId id) { return blocks_[static_cast<std::size_t>(id)]; }
    [[nodiscard]] const Block& at(BlockId id) const { return blocks_[static_cast<std::size_t>(id)]; }
    void link_idle(BlockId id) noexcept;
    void unlink_idle(BlockId id) noexcept;

    std::vector<BlockId> free_;  // used as a stack, so take and drop are O(1) per block
    std::vector<Block> blocks_;  // [num_blocks + 1]; the last is the head of the ring of idle blocks
    std::int32_t num_idle_ = 0;
    std::function<void(BlockId)> on_reuse_;
};

}  // namespace engine
