#pragma once

#include <cstdint>
#include <string>

#include "daemon/config/config.hpp"

namespace app {

/// "1.50 GiB", "12.0 MiB".
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// What decides how large the KV cache becomes.
struct KvNeeds {
    std::uint64_t block_bytes = 0;   ///< of one block over all layers
    std::int64_t block_tokens = 0;
    std::uint64_t free_bytes = 0;    ///< of the device, the weights taken off
    std::int64_t context_length = 0; ///< tokens of the longest sequence
    std::int64_t max_seqs = 0;
    std::int64_t min_tokens = 0;     ///< what the caller cannot do without
};

/// Blocks of the KV cache. What the configuration states (kv.max_tokens, else kv.memory_bytes) is what there
/// will be; without either it is kv.memory_fraction of what is free, and no more than max_seqs sequences of
/// the whole context can use.
/// Throws base::ConfigError with what is wanted and what is free when it does not fit.
[[nodiscard]] std::int32_t num_kv_blocks(const config::Kv& kv, const KvNeeds& needs);

}  // namespace app
