#include "daemon/engine/block_pool.hpp"

#include "daemon/base/check.hpp"

namespace engine {

BlockPool::BlockPool(std::int32_t num_blocks) : blocks_(static_cast<std::size_t>(num_blocks) + 1) {
    CHECK(num_blocks >= 1);
    free_.reserve(static_cast<std::size_t>(num_blocks));
    for (std::int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(BlockId{id});
    blocks_.back().previous = blocks_.back().next = num_blocks;
}

base::Result<void> BlockPool::take(std::span<BlockId> out) noexcept {
    if (static_cast<std::size_t>(num_free()) < out.size())
        return base::make_error_code(base::Errc::kv_exhausted);
    for (BlockId& id : out) {
        if (free_.empty()) {
            const BlockId oldest{blocks_.back().next};
            if (on_reuse_) on_reuse_(oldest);
            forget(oldest);
        }
        id = free_.back();
        free_.pop_back();
        at(id).holders = 1;
    }
    return {};
}

void BlockPool::share(BlockId id) noexcept {
    Block& block = at(id);
    CHECK(block.holders > 0 || block.is_kept);
    if (block.holders++ == 0) unlink_idle(id);
}

void BlockPool::drop(BlockId id) noexcept {
    Block& block = at(id);
    CHECK(block.holders > 0);
    if (--block.holders > 0) return;
    if (block.is_kept)
        link_idle(id);
    else
        free_.push_back(id);
}

void BlockPool::keep(BlockId id) noexcept {
    CHECK(at(id).holders > 0);
    at(id).is_kept = true;
}

void BlockPool::forget(BlockId id) noexcept {
    Block& block = at(id);
    CHECK(block.is_kept);
    block.is_kept = false;
    if (block.holders > 0) return;
    unlink_idle(id);
    free_.push_back(id);
}

void BlockPool::link_idle(BlockId id) noexcept {
    Block& head = blocks_.back();
    Block& block = at(id);
    block.previous = head.previous;
    block.next = num_blocks();
    blocks_[static_cast<std::size_t>(head.previous)].next = static_cast<std::int32_t>(id);
    head.previous = static_cast<std::int32_t>(id);
    ++num_idle_;
}

void BlockPool::unlink_idle(BlockId id) noexcept {
    Block& block = at(id);
    blocks_[static_cast<std::size_t>(block.previous)].next = block.next;
    blocks_[static_cast<std::size_t>(block.next)].previous = block.previous;
    block.previous = block.next = -1;
    --num_idle_;
}

}  // namespace engine
