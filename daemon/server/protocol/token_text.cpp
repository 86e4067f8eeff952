#include "daemon/server/protocol/token_text.hpp"

#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/text_codec.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>

namespace server {
namespace {

void append_token(std::string& out, std::string_view bytes, float logprob) {
    out += R"({"token":)";
    append_string(out, lossy_text(bytes));
    out += R"(,"logprob":)";
    append_number(out, logprob);
    out += R"(,"bytes":[)";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i != 0) out += ',';
        out += std::to_string(static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
    }
    out += ']';
}

}  // namespace

std::string lossy_text(std::string_view bytes) {
    if (text::is_valid_utf8(bytes)) return std::string{bytes};
    text::Utf8Stream stream;
    std::string out = stream.push(bytes);
    return out += stream.flush();
}

void append_logprob_entry(std::string& out, const ScoredToken& scored, std::size_t num_top,
                          const TextCodec& codec) {
    append_token(out, codec.piece(scored.token, true), scored.logprobs.logprob);
    out += R"(,"top_logprobs":[)";
    const std::size_t n = std::min(num_top, scored.logprobs.top.size());
    for (std::size_t i = 0; i < n; ++i) {
        if (i != 0) out += ',';
        const auto& [token, logprob] = scored.logprobs.top[i];
        append_token(out, codec.piece(token, true), logprob);
        out += '}';
    }
    out += "]}";
}

}  // namespace server
