#pragma once

#include "daemon/server/protocol/token_text.hpp"
#include "daemon/server/session/generation.hpp"
#include "daemon/text/reply/parser.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace server {

/// How a prompt wants its reply to be read.
struct ReplyShape {
    const reply::Format* format = nullptr;  ///< null: reasoning in the common tags, and no calls
    bool in_reasoning = false;              ///< the prompt leaves the reasoning open
};

/// One thing that a reply says, and the tokens it came from.
struct ReplyPiece {
    reply::Event event;
    std::vector<ScoredToken> tokens;  ///< content only, where tokens are reported
};

/// Reads the deltas of one generation as reasoning, content and calls. Thread: io.
///
/// Reported tokens go with the content that they print; those of marks, reasoning and calls are
/// dropped. A token that prints the end of one thing and the beginning of another goes with the
/// content.
class ReplyReader {
public:
    /// @param tools  null or empty: nothing is a call
    ReplyReader(ReplyShape shape, std::shared_ptr<const reply::Tools> tools);

    /// The pieces are there until the next call.
    [[nodiscard]] std::vector<ReplyPiece>& feed(Delta&& delta);
    /// No delta follows: what was held back.
    [[nodiscard]] std::vector<ReplyPiece>& finish();

    /// Tokens whose text was reasoning or closed it.
    [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

private:
    /// Tokens and where their text ends in the reply.
    struct Tokens {
        std::size_t begin, end;
        std::vector<ScoredToken> tokens;
    };

    std::vector<ReplyPiece>& collect();
    [[nodiscard]] std::vector<ScoredToken> take_tokens(std::size_t begin, std::size_t end);

    reply::Parser parser_;
    std::vector<reply::Event> events_;
    std::vector<ReplyPiece> pieces_;
    std::deque<Tokens> tokens_;  // not yet said or dropped
    std::size_t num_fed_ = 0;    // bytes
    std::int64_t reasoning_tokens_ = 0;
    bool ends_in_content_ = false;  // the last piece was content
};

}  // namespace server
