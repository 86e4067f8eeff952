#include "daemon/model/kv_cache.hpp"

#include "daemon/base/check.hpp"

namespace model {
namespace {

constexpr std::uint64_t kAlignment = 256;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

KvCache::KvCache(const plugin::Device& device, std::vector<assay_kv_layout> layouts,
                 std::int32_t num_blocks)
    : layouts_{std::move(layouts)},
      num_blocks_{num_blocks},
      block_size_{static_cast<std::int32_t>(layouts_.front().page_tokens)} {
    std::uint64_t total = 0;
    for (const assay_kv_layout& layout : layouts_) {
        CHECK(layout.page_tokens == layouts_.front().page_tokens);
        auto& offsets = offsets_.emplace_back();
        for (std::uint32_t p = 0; p < layout.num_planes; ++p) {
            offsets[p] = total;
            total += aligned(layout.planes[p].bytes_per_token * layout.page_tokens *
                             static_cast<std::uint64_t>(num_blocks));
        }
    }
    storage_ = device.alloc(total);
}

void KvCache::planes(std::int64_t layer, void* out[ASSAY_MAX_PLANES]) const {
    const auto l = static_cast<std::size_t>(layer);
    for (std::uint32_t p = 0; p < ASSAY_MAX_PLANES; ++p)
        out[p] = p < layouts_[l].num_planes ? storage_.as<char>() + offsets_[l][p] : nullptr;
}

std::uint64_t KvCache::block_bytes(const std::vector<assay_kv_layout>& layouts) {
    std::uint64_t bytes = 0;
    for (const assay_kv_layout& layout : layouts)
        for (std::uint32_t p = 0; p < layout.num_planes; ++p)
            bytes += layout.planes[p].bytes_per_token * layout.page_tokens;
    return bytes;
}

}  // namespace model
