#include "daemon/text/grammar/machine.hpp"

#include "daemon/text/grammar/string_body.hpp"

#include <algorithm>

namespace grammar {

bool Machine::is_same_stack(std::uint32_t a, std::uint32_t b) const {
    while (a != b) {
        if (a == kNone || b == kNone) return false;
        const Frame &x = frames_[a], &y = frames_[b];
        if (x.return_state != y.return_state || x.depth != y.depth) return false;
        a = x.parent;
        b = y.parent;
    }
    return true;
}

void Machine::insert(const Config& config, Configs& out) const {
    for (const Config& other : out.items)
        if (other.state == config.state && other.min_chars == config.min_chars &&
            other.max_chars == config.max_chars && is_same_stack(other.frame, config.frame))
            return;
    if (out.items.size() < kMaxConfigs) out.items.push_back(config);
}

void Machine::add(const Config& config, Configs& out) {
    if (config.state >= kInString) return insert(config, out);
    const State& s = grammar_->state(config.state);
    const std::uint32_t here = depth(config.frame);
    if (here + s.need > max_depth_) return;
    if (s.num_edges > 0) insert(config, out);
    for (const Call& call : grammar_->calls(s)) {
        const bool is_string = call.symbol.rule == kStringBody;
        const std::uint32_t start = is_string ? kInString : grammar_->start(call.symbol.rule);
        const std::uint32_t need = is_string ? 0 : grammar_->state(start).need;
        if (here + 1 + need > max_depth_ ||
            here + grammar_->state(call.return_state).need > max_depth_)
            continue;
        if (out.items.size() >= kMaxConfigs) return;
        frames_.push_back({config.frame, call.return_state, here + 1});
        add({start, static_cast<std::uint32_t>(frames_.size() - 1), call.symbol.min_chars,
             call.symbol.max_chars},
            out);
    }
    if (s.is_final) add_return(config, out);
}

void Machine::add_return(const Config& config, Configs& out) {
    if (config.frame == kNone) {
        out.at_end = true;
        return;
    }
    const Frame frame = frames_[config.frame];
    add({frame.return_state, frame.parent}, out);
}

void Machine::step(const Config& from, std::uint8_t byte, Configs& to) {
    if (from.state < kInString) {
        for (const Edge& edge : grammar_->edges(grammar_->state(from.state)))
            if (edge.first <= byte && byte <= edge.last) return add({edge.target, from.frame}, to);
        return;
    }
    using Move = StringBody::Move;
    const std::uint32_t state = from.state - kInString;
    const auto next = StringBody::step(state, byte);
    if (next.move == Move::none) return;
    if (next.move == Move::close) {
        if (from.min_chars == 0) add_return(from, to);
        return;
    }
    if (from.max_chars == 0) return;
    Config there = from;
    there.state = kInString + next.state;
    if (next.move == Move::complete) {
        if (there.min_chars > 0) --there.min_chars;
        if (there.max_chars != kUnbounded) --there.max_chars;
    }
    insert(there, to);
}

void Machine::step(const Configs& from, std::uint8_t byte, Configs& to) {
    to.clear();
    for (const Config& config : from.items) step(config, byte, to);
}

void Machine::add_first_bytes(const Configs& from, std::bitset<256>& bytes) const {
    for (const Config& config : from.items) {
        if (config.state >= kInString) {
            bytes |= StringBody::first_bytes(config.state - kInString);
        } else {
            for (const Edge& edge : grammar_->edges(grammar_->state(config.state)))
                for (unsigned byte = edge.first; byte <= edge.last; ++byte) bytes.set(byte);
        }
    }
}

void Machine::compact(Configs& in_use) {
    std::vector<std::uint32_t> moved(frames_.size(), kNone);
    std::vector<bool> is_kept(frames_.size());
    for (const Config& config : in_use.items)
        for (std::uint32_t f = config.frame; f != kNone && !is_kept[f]; f = frames_[f].parent)
            is_kept[f] = true;
    std::uint32_t n = 0;
    for (std::uint32_t f = 0; f < frames_.size(); ++f) {
        if (!is_kept[f]) continue;  // parents come before the frames above them
        Frame frame = frames_[f];
        if (frame.parent != kNone) frame.parent = moved[frame.parent];
        moved[f] = n;
        frames_[n++] = frame;
    }
    frames_.resize(n);
    for (Config& config : in_use.items)
        if (config.frame != kNone) config.frame = moved[config.frame];
}

}  // namespace grammar
