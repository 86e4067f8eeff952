#include "daemon/engine/block_pool.hpp"

#include "daemon/base/check.hpp"

namespace engine {

BlockPool::BlockPool(std::int32_t num_blocks) : holders_(static_cast<std::size_t>(num_blocks), 0) {
    CHECK(num_blocks >= 1);
    free_.reserve(holders_.size());
    for (std::int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(BlockId{id});
}

base::Result<void> BlockPool::take(std::span<BlockId> out) noexcept {
    if (free_.size() < out.size()) return base::make_error_code(base::Errc::kv_exhausted);
    for (BlockId& id : out) {
        id = free_.back();
        free_.pop_back();
        holders_[static_cast<std::size_t>(id)] = 1;
    }
    return {};
}

void BlockPool::share(BlockId id) noexcept {
    std::int32_t& holders = holders_[static_cast<std::size_t>(id)];
    CHECK(holders > 0);
    ++holders;
}

void BlockPool::drop(BlockId id) noexcept {
    std::int32_t& holders = holders_[static_cast<std::size_t>(id)];
    CHECK(holders > 0);
    if (--holders == 0) free_.push_back(id);
}

}  // namespace engine
