#include "daemon/text/grammar/automaton.hpp"

#include "daemon/base/check.hpp"
#include "daemon/text/utf8.hpp"

#include <algorithm>
#include <map>

namespace grammar {

namespace {

constexpr std::uint16_t kEndless = UINT16_MAX;  // State::need: no end can be reached

using Ids = std::vector<std::uint32_t>;

std::uint16_t saturated(std::uint32_t need) {
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(need, kEndless));
}

}  // namespace

// ---- Nfa
// -----------------------------------------------------------------------------------------

Nfa::Id Nfa::add() {
    if (states_.size() >= kMaxSubsetWork / 16) throw LimitError{"it describes too many texts"};
    states_.emplace_back();
    return static_cast<Id>(states_.size() - 1);
}

Nfa::Id Nfa::text(Id from, std::string_view text) {
    for (const char c : text) {
        const Id next = add();
        bytes(from, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), next);
        from = next;
    }
    return from;
}

Nfa::Id Nfa::space(Id from) {
    const Id next = text(from, " ");
    epsilon(from, next);
    return next;
}

void Nfa::characters(Id from, char32_t first, char32_t last, Id to) {
    struct Block {
        char32_t first, last;
    };
    // Ranges whose characters have one length, and a first continuation byte without holes.
    constexpr Block kBlocks[] = {{0, 0x7F},          {0x80, 0x7FF},       {0x800, 0xFFF},
                                 {0x1000, 0xD7FF},   {0xE000, 0xFFFF},    {0x10000, 0x3FFFF},
                                 {0x40000, 0xFFFFF}, {0x100000, 0x10FFFF}};
    // The bytes of low..high, which have the same length, from byte `at` on.
    const auto add_range = [this, to](auto&& self, Id state, std::string low, std::string high,
                                      std::size_t at) -> void {
        const auto lo = static_cast<std::uint8_t>(low[at]),
                   hi = static_cast<std::uint8_t>(high[at]);
        if (at + 1 == low.size()) return bytes(state, lo, hi, to);
        const auto fill = [&](std::string text, char c) {
            std::fill(text.begin() + static_cast<std::ptrdiff_t>(at) + 1, text.end(), c);
            return text;
        };
        const auto step = [&](unsigned b0, unsigned b1, const std::string& l,
                              const std::string& h) {
            const Id next = add();
            bytes(state, b0, b1, next);
            self(self, next, l, h, at + 1);
        };
        if (lo == hi) return step(lo, hi, low, high);
        const std::string lowest = fill(low, '\x80'), highest = fill(high, '\xBF');
        unsigned begin = lo, end = hi;
        if (low != lowest) {
            step(lo, lo, low, fill(low, '\xBF'));
            ++begin;
        }
        if (high != highest) {
            step(hi, hi, fill(high, '\x80'), high);
            --end;
        }
        if (begin <= end) step(begin, end, lowest, highest);
    };
    for (const Block& block : kBlocks) {
        const char32_t lo = std::max(first, block.first), hi = std::min(last, block.last);
        if (lo > hi) continue;
        std::string low, high;
        text::append_utf8(low, lo);
        text::append_utf8(high, hi);
        add_range(add_range, from, low, high, 0);
    }
}

// ---- Grammar
// -------------------------------------------------------------------------------------

std::uint32_t Grammar::add_rule() {
    starts_.push_back(kNone);
    return static_cast<std::uint32_t>(starts_.size() - 1);
}

bool Grammar::is_mark(std::string_view control) const {
    constexpr std::size_t kMinBytes = 3;  // of a token that can be nothing else
    return control.size() >= kMinBytes && std::ranges::any_of(marks_, [&](const std::string& mark) {
               return mark.find(control) != std::string::npos;
           });
}

/// The subset construction, calls being letters like bytes.
void Grammar::set_body(std::uint32_t rule, const Nfa& nfa, std::uint32_t start, std::uint32_t end) {
    const auto spend = [this](std::size_t work) {
        subset_work_ += work;
        if (subset_work_ > kMaxSubsetWork) throw LimitError{"it describes too many texts"};
    };
    const auto close = [&](Ids set) {
        std::vector<bool> is_in(nfa.states_.size());
        Ids open = std::move(set), closed;
        while (!open.empty()) {
            const std::uint32_t id = open.back();
            open.pop_back();
            if (is_in[id]) continue;
            is_in[id] = true;
            closed.push_back(id);
            const Ids& more = nfa.states_[id].epsilons;
            open.insert(open.end(), more.begin(), more.end());
        }
        spend(closed.size() + is_in.size() / 64);
        std::sort(closed.begin(), closed.end());
        return closed;
    };
    std::map<Ids, std::uint32_t> known;
    std::vector<const Ids*> order;
    const auto state_of = [&](Ids set) {
        const auto [at, is_new] =
            known.try_emplace(close(std::move(set)), static_cast<std::uint32_t>(states_.size()));
        if (is_new) {
            if (states_.size() >= kMaxStates) throw LimitError{"it describes too many texts"};
            states_.emplace_back();
            order.push_back(&at->first);
        }
        return at->second;
    };
    const auto first = static_cast<std::uint32_t>(states_.size());
    starts_[rule] = state_of({start});
    for (std::size_t i = 0; i < order.size(); ++i) {
        const Ids& set = *order[i];
        std::vector<Edge> ranges;
        std::map<Symbol, Ids> calls;
        State made;
        made.is_outer = nfa.is_outer_;
        for (const std::uint32_t id : set) {
            const auto& node = nfa.states_[id];
            made.is_final |= id == end;
            ranges.insert(ranges.end(), node.edges.begin(), node.edges.end());
            for (const Call& call : node.calls) calls[call.symbol].push_back(call.return_state);
        }
        // Bytes between two neighbouring cuts go the same way.
        std::vector<bool> is_cut(257);
        for (const Edge& range : ranges) is_cut[range.first] = is_cut[range.last + 1U] = true;
        spend(ranges.size());
        std::vector<Edge> edges;
        for (unsigned from = 0; from < 256 && !ranges.empty();) {
            unsigned to = from + 1;
            while (to < 256 && !is_cut[to]) ++to;
            Ids targets;
            for (const Edge& range : ranges)
                if (range.first <= from && from <= range.last) targets.push_back(range.target);
            spend(1 + targets.size());
            if (!targets.empty()) {
                const std::uint32_t target = state_of(std::move(targets));
                const bool goes_on = !edges.empty() && edges.back().target == target &&
                                     edges.back().last + 1U == from;
                if (goes_on)
                    edges.back().last = static_cast<std::uint8_t>(to - 1);
                else
                    edges.push_back({static_cast<std::uint8_t>(from),
                                     static_cast<std::uint8_t>(to - 1), target});
            }
            from = to;
        }
        made.first_edge = static_cast<std::uint32_t>(edges_.size());
        made.num_edges = static_cast<std::uint16_t>(edges.size());
        edges_.insert(edges_.end(), edges.begin(), edges.end());
        std::vector<Call> made_calls;
        for (auto& [symbol, targets] : calls)
            made_calls.push_back({symbol, state_of(std::move(targets))});
        if (made_calls.size() > UINT16_MAX) throw LimitError{"it describes too many texts"};
        made.first_call = static_cast<std::uint32_t>(calls_.size());
        made.num_calls = static_cast<std::uint16_t>(made_calls.size());
        calls_.insert(calls_.end(), made_calls.begin(), made_calls.end());
        states_[first + i] = made;
    }
    CHECK(!states_[starts_[rule]].is_final || rule == 0);  // a rule that may be empty would not end
}

std::uint32_t Grammar::need_of(const Symbol& symbol) const {
    return symbol.rule == kStringBody ? 0 : states_[starts_[symbol.rule]].need;
}

void Grammar::find_needs() {
    for (State& s : states_) s.need = s.is_final ? 0 : kEndless;
    for (bool changed = true; changed;) {
        changed = false;
        // Backwards, since targets mostly come after their sources.
        for (std::size_t i = states_.size(); i-- > 0;) {
            State& s = states_[i];
            std::uint32_t need = s.need;
            for (const Edge& e : edges(s))
                need = std::min<std::uint32_t>(need, states_[e.target].need);
            for (const Call& c : calls(s))
                need = std::min(need, std::max<std::uint32_t>(1 + need_of(c.symbol),
                                                              states_[c.return_state].need));
            if (need > kMaxDepth) need = kEndless;
            changed |= need < s.need;
            s.need = saturated(need);
        }
    }
}

void Grammar::prune() {
    const auto is_dead = [this](std::uint32_t id) { return states_[id].need == kEndless; };
    for (State& s : states_) {
        const auto edges_begin = edges_.begin() + s.first_edge;
        const auto edges_end = std::remove_if(edges_begin, edges_begin + s.num_edges,
                                              [&](const Edge& e) { return is_dead(e.target); });
        s.num_edges = static_cast<std::uint16_t>(edges_end - edges_begin);
        const auto calls_begin = calls_.begin() + s.first_call;
        const auto calls_end =
            std::remove_if(calls_begin, calls_begin + s.num_calls, [&](const Call& c) {
                return is_dead(c.return_state) || need_of(c.symbol) == kEndless;
            });
        s.num_calls = static_cast<std::uint16_t>(calls_end - calls_begin);
        if (s.need != kEndless) max_need_ = std::max<std::uint32_t>(max_need_, s.need);
    }
}

void Grammar::refuse_left_recursion() const {
    enum class Mark : std::uint8_t { fresh, open, done };
    std::vector<Mark> marks(starts_.size(), Mark::fresh);
    const auto visit = [&](auto&& self, std::uint32_t rule) -> void {
        if (marks[rule] == Mark::done) return;
        if (marks[rule] == Mark::open)
            throw LimitError{"a schema refers to itself without a level between"};
        marks[rule] = Mark::open;
        for (const Call& call : calls(states_[starts_[rule]]))
            if (call.symbol.rule != kStringBody) self(self, call.symbol.rule);
        marks[rule] = Mark::done;
    };
    for (std::uint32_t rule = 0; rule < starts_.size(); ++rule) visit(visit, rule);
}

bool Grammar::finish() {
    find_needs();
    prune();
    refuse_left_recursion();
    return states_[starts_[0]].need != kEndless;
}

}  // namespace grammar
