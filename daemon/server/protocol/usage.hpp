#pragma once

#include <cstdint>

namespace server {

/// Tokens of one response, or of all choices of one completion.
struct Usage {
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;  ///< of the prompt, found in the prefix cache
    std::int64_t output_tokens = 0;
    std::int64_t reasoning_tokens = 0;  ///< of the output
};

}  // namespace server
