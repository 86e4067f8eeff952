#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/plugin.h"
#include "daemon/plugin/instance.hpp"

namespace model {

/// The pages of every layer on one device. One block id names the same page in every layer and
/// plane, so the block pool needs to know nothing of layouts.
class KvCache {
public:
    /// @param layouts  [num_layers], all with the same page_tokens
    /// Throws base::ConfigError when the memory cannot be had.
    KvCache(const plugin::Device& device, std::vector<assay_kv_layout> layouts, std::int32_t num_blocks);

    [[nodiscard]] std::int32_t num_blocks() const { return num_blocks_; }
    [[nodiscard]] std::int32_t block_size() const { return block_size_; }
    [[nodiscard]] std::uint64_t bytes() const { return storage_.bytes(); }
    /// Base pointer of each plane of one layer.
    void planes(std::int64_t layer, void* out[ASSAY_MAX_PLANES]) const;
    [[nodiscard]] const assay_kv_layout& layout(std::int64_t layer) const {
        return layouts_[static_cast<std::size_t>(layer)];
    }

    /// Bytes that one block takes over all layers and planes.
    [[nodiscard]] static std::uint64_t block_bytes(const std::vector<assay_kv_layout>& layouts);

private:
    std::vector<assay_kv_layout> layouts_;
    std::int32_t num_blocks_ = 0, block_size_ = 0;
    plugin::Buffer storage_;
    std::vector<std::array<std::uint64_t, ASSAY_MAX_PLANES>> offsets_;  // [num_layers]
};

}  // namespace model
