#include "daemon/app/kv_budget.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "daemon/base/error.hpp"

namespace app {
namespace {

std::int64_t blocks_of(std::int64_t tokens, std::int64_t block_tokens) {
    return tokens / block_tokens + (tokens % block_tokens != 0 ? 1 : 0);
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
    char text[32];
    if (bytes >= (1ULL << 30U))
        std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30U));
    else
        std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1ULL << 20U));
    return text;
}

std::int32_t num_kv_blocks(const config::Kv& kv, const KvNeeds& needs) {
    // In floating point where a product could overflow: what is that large is refused anyway.
    const auto bytes_of = [&](std::int64_t blocks) {
        return static_cast<double>(blocks) * static_cast<double>(needs.block_bytes);
    };
    const auto refuse_unless_free = [&](const std::string& wanted, double bytes) {
        if (bytes <= static_cast<double>(needs.free_bytes)) return;
        const double shown = std::min(bytes, 9e18);
        throw base::ConfigError{wanted + " take " + size_text(static_cast<std::uint64_t>(shown)) + ", and " +
                                size_text(needs.free_bytes) + " are free beside the weights"};
    };
    std::int64_t blocks = 0;
    if (kv.max_tokens > 0) {
        blocks = blocks_of(kv.max_tokens, needs.block_tokens);
        refuse_unless_free("kv.max_tokens: " + std::to_string(kv.max_tokens) + " tokens", bytes_of(blocks));
    } else if (kv.memory_bytes > 0) {
        refuse_unless_free("kv.memory_bytes: " + std::to_string(kv.memory_bytes) + " bytes",
                           static_cast<double>(kv.memory_bytes));
        blocks = kv.memory_bytes / static_cast<std::int64_t>(needs.block_bytes);
    } else {
        const double budget = static_cast<double>(needs.free_bytes) * kv.memory_fraction;
        blocks = static_cast<std::int64_t>(budget / static_cast<double>(needs.block_bytes));
        blocks = std::min(blocks, blocks_of(needs.context_length, needs.block_tokens) * needs.max_seqs);
    }
    blocks = std::max(blocks, blocks_of(needs.min_tokens, needs.block_tokens));
    if (blocks < 1)
        throw base::ConfigError{
            std::string{kv.memory_bytes > 0 ? "kv.memory_bytes" : "kv.memory_fraction"} + ": a block of " +
            std::to_string(needs.block_tokens) + " tokens takes " + size_text(needs.block_bytes) + ", more than the " +
            size_text(kv.memory_bytes > 0 ? static_cast<std::uint64_t>(kv.memory_bytes)
                                          : static_cast<std::uint64_t>(static_cast<double>(needs.free_bytes) *
                                                                       kv.memory_fraction)) +
            " allowed (" + size_text(needs.free_bytes) + " are free beside the weights)"};
    if (needs.min_tokens > 0)
        refuse_unless_free("kv: " + std::to_string(needs.min_tokens) + " tokens", bytes_of(blocks));
    // Slots of tokens are 32-bit numbers.
    const std::int64_t most = std::numeric_limits<std::int32_t>::max() / needs.block_tokens;
    if (blocks > most && kv.max_tokens > 0)
        throw base::ConfigError{"kv.max_tokens: " + std::to_string(kv.max_tokens) + " tokens, want at most " +
                                std::to_string(most * needs.block_tokens)};
    return static_cast<std::int32_t>(std::min(blocks, most));
}

}  // namespace app
