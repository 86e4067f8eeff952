#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace text {

/// One symbol of a piece while it is being merged. Symbols form a linked list in text order.
struct Symbol {
    std::int32_t id = -1;      ///< what it is; its meaning is the caller's
    std::uint32_t begin = 0;   ///< offset of its bytes in the piece
    std::uint32_t length = 0;  ///< bytes; 0: merged into its left neighbour
    std::int32_t previous = -1;
    std::int32_t next = -1;
};

/// A pair of neighbours that may be merged.
template <class Priority>
struct MergeCandidate {
    Priority priority;                        // smaller merges first; on equal ones the leftmost
    std::int32_t left;                        // index of the left symbol
    std::int32_t merged;                      // id after merging
    std::uint32_t left_length, right_length;  // as queued: another length means it is stale
};

/// Merges neighbours, best pair first, until no pair may be merged. O(n log n).
///
/// @param symbols  [n] in text order, linked; those with length 0 afterwards were merged away
/// @param find     (left, right, priority&, merged_id&) -> bool: may these two be merged?
/// @param heap     scratch, so that its memory is used again
template <class Priority, class Find>
void merge_symbols(std::vector<Symbol>& symbols, Find&& find,
                   std::vector<MergeCandidate<Priority>>& heap) {
    const auto later = [](const MergeCandidate<Priority>& a, const MergeCandidate<Priority>& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.left > b.left;
    };
    const auto candidate = [&](std::int32_t left) {
        if (left < 0) return false;
        const Symbol& l = symbols[static_cast<std::size_t>(left)];
        if (l.next < 0) return false;
        const Symbol& r = symbols[static_cast<std::size_t>(l.next)];
        MergeCandidate<Priority> c{{}, left, -1, l.length, r.length};
        if (!find(l, r, c.priority, c.merged)) return false;
        heap.push_back(c);
        return true;
    };

    heap.clear();
    for (std::size_t i = 0; i < symbols.size(); ++i) candidate(static_cast<std::int32_t>(i));
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), later);
        const MergeCandidate<Priority> best = heap.back();
        heap.pop_back();
        Symbol& left = symbols[static_cast<std::size_t>(best.left)];
        if (left.length != best.left_length || left.next < 0) continue;
        Symbol& right = symbols[static_cast<std::size_t>(left.next)];
        if (right.length != best.right_length) continue;

        left.id = best.merged;
        left.length += right.length;
        left.next = right.next;
        right.length = 0;
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.left;
        if (candidate(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
        if (candidate(best.left)) std::push_heap(heap.begin(), heap.end(), later);
    }
}

}  // namespace text
