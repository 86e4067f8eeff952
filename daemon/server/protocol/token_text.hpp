#pragma once

#include "daemon/base/request.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace server {

class TextCodec;

/// A token and what was asked about its probability.
struct ScoredToken {
    std::int32_t token = -1;
    base::TokenLogprobs logprobs;
};

/// A token's bytes as well-formed UTF-8; what is none becomes U+FFFD.
[[nodiscard]] std::string lossy_text(std::string_view bytes);

/// {"token","logprob","bytes","top_logprobs":[…]}: the entry that Responses and chat share.
void append_logprob_entry(std::string& out, const ScoredToken& scored, std::size_t num_top,
                          const TextCodec& codec);

}  // namespace server
