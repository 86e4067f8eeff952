#pragma once

#include "daemon/server/protocol/response_request.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace server {

/// A checked body of POST /tokenize: a text, or a conversation.
struct TokenizeRequest {
    std::string model;                ///< "": the one that is served
    std::optional<std::string> text;  ///< `prompt`, or `content`
    boost::json::array messages;      ///< normalised for the template; where there is no text
    boost::json::array functions;
    boost::json::object template_kwargs;
    bool add_special = true;    ///< BOS and EOS, where the model wants them
    bool parse_special = true;  ///< texts of control tokens become those tokens
    bool with_pieces = false;   ///< what each token prints as, too
};

[[nodiscard]] Parsed<TokenizeRequest> parse_tokenize_request(const boost::json::object& body,
                                                             const ParseContext& context);

/// A checked body of POST /detokenize.
struct DetokenizeRequest {
    std::string model;  ///< "": the one that is served
    std::vector<std::int32_t> ids;
};

[[nodiscard]] Parsed<DetokenizeRequest> parse_detokenize_request(const boost::json::object& body,
                                                                 const ParseContext& context);

}  // namespace server
