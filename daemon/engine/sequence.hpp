#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/request.hpp"
#include "daemon/engine/block_pool.hpp"
#include "daemon/engine/fair_share.hpp"
#include "daemon/engine/prefix_cache.hpp"

namespace engine {

/// One stream of tokens: the prompt, what was generated, and the blocks that hold its KV.
struct Sequence {
    base::Request request;
    std::vector<std::int32_t> tokens;  ///< prompt, then generated
    std::vector<BlockId> blocks;       ///< in order of position
    std::int32_t num_computed = 0;     ///< tokens whose KV is in the cache
    std::int32_t num_scheduled = 0;    ///< tokens in the step being run
    std::uint64_t arrival = 0;         ///< order of submission
    bool is_admitted = false;          ///< the `admitted` event was sent
    bool is_paused = false;            ///< its client does not read: nothing is computed for it
    ClientShare* share = nullptr;      ///< of the client that it belongs to
    PrefixCache::Node node = PrefixCache::Node::root;  ///< of the last full block that is known
    std::int32_t num_known_blocks = 0; ///< full blocks that the prefix cache has seen
    std::int32_t num_cached = 0;       ///< prompt tokens found in the prefix cache when it was first run
    /// Where it stands in its request's rules; null = anything may follow. Survives preemption, like
    /// the tokens that it has seen.
    std::unique_ptr<base::TokenConstraint> constraint;
    /// Prompt scores of chunks already run; delivered at once with the last.
    std::vector<base::TokenLogprobs> prompt_logprobs;

    [[nodiscard]] std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
    [[nodiscard]] std::int32_t prompt_tokens() const {
        return static_cast<std::int32_t>(request.prompt.size());
    }
    [[nodiscard]] std::int32_t num_generated() const { return num_tokens() - prompt_tokens(); }
    [[nodiscard]] std::int32_t num_pending() const { return num_tokens() - num_computed; }
    /// Past its prompt, one token to go: a decode.
    [[nodiscard]] bool is_decoding() const { return num_generated() > 0 && num_pending() == 1; }
};

}  // namespace engine
