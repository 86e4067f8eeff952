#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/protocol/fields.hpp"

#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace server {

/// How to generate: the parameters that every surface has.
struct GenerationParams {
    base::Sampling sampling;
    std::optional<std::int64_t> seed;  ///< none: a fresh random one
    std::int32_t max_tokens = 0;       ///< 0: to the end of the context
    std::int32_t min_tokens = 0;
    std::vector<std::string> stop;  ///< none of them empty: "" counts as not given
    std::vector<std::int32_t> stop_token_ids;
    bool include_stop = false;
    bool skip_special = true;
    bool ignore_eos = false;
};

/// Reads one of the parameters that every surface has under the same name (temperature, top_p,
/// top_k, min_p, the penalties, seed, stop, stop_token_ids, logit_bias, ignore_eos, min_tokens, …).
/// @param vocab_size  bound of the token ids in logit_bias and stop_token_ids
/// @return            whether `name` is one of them; mistakes go to `reader`
bool read_generation_param(std::string_view name, const boost::json::value& value,
                           std::int32_t vocab_size, GenerationParams& params, FieldReader& reader);

/// What can be said once all of them are read: min_tokens is at most max_tokens.
bool check_generation_params(const GenerationParams& params, FieldReader& reader);

}  // namespace server
