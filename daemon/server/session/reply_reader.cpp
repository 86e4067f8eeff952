#include "daemon/server/session/reply_reader.hpp"

#include "daemon/text/reply/format.hpp"

#include <iterator>
#include <utility>

namespace server {
namespace {

const reply::Format& format_of(const ReplyShape& shape) {
    return shape.format != nullptr ? *shape.format : reply::formats().back();
}

}  // namespace

ReplyReader::ReplyReader(ReplyShape shape, std::shared_ptr<const reply::Tools> tools)
    : parser_{format_of(shape),
              {.tools = std::move(tools), .in_reasoning = shape.in_reasoning}} {}

std::vector<ReplyPiece>& ReplyReader::feed(Delta&& delta) {
    const bool was_reasoning = parser_.in_reasoning();
    const std::size_t begin = num_fed_;
    num_fed_ += delta.text.size();
    if (delta.text.empty()) {  // tokens that print nothing belong to what they end
        pieces_.clear();
        if (ends_in_content_)
            pieces_.push_back({{.kind = reply::Event::Kind::content, .at = begin},
                               std::move(delta.tokens)});
        return pieces_;
    }
    if (!delta.tokens.empty()) tokens_.push_back({begin, num_fed_, std::move(delta.tokens)});
    events_.clear();
    parser_.feed(delta.text, events_);
    if (was_reasoning || parser_.in_reasoning()) reasoning_tokens_ += delta.num_tokens;
    return collect();
}

std::vector<ReplyPiece>& ReplyReader::finish() {
    events_.clear();
    parser_.finish(events_);
    return collect();
}

std::vector<ReplyPiece>& ReplyReader::collect() {
    using Kind = reply::Event::Kind;
    pieces_.clear();
    for (reply::Event& event : events_) {
        ReplyPiece piece;
        const std::size_t end = event.at + event.text.size();
        ends_in_content_ = event.kind == Kind::content;
        if (event.kind == Kind::content)
            piece.tokens = take_tokens(event.at, end);
        else if (event.kind == Kind::reasoning)
            while (!tokens_.empty() && tokens_.front().end <= end) tokens_.pop_front();
        piece.event = std::move(event);
        pieces_.push_back(std::move(piece));
    }
    return pieces_;
}

/// The tokens that print something of [begin, end); older ones are dropped.
std::vector<ScoredToken> ReplyReader::take_tokens(std::size_t begin, std::size_t end) {
    std::vector<ScoredToken> out;
    while (!tokens_.empty() && tokens_.front().end <= begin) tokens_.pop_front();
    while (!tokens_.empty() && tokens_.front().begin < end) {
        auto& tokens = tokens_.front().tokens;
        std::move(tokens.begin(), tokens.end(), std::back_inserter(out));
        tokens_.pop_front();
    }
    return out;
}

}  // namespace server
