#include "daemon/text/grammar/token_trie.hpp"

#include <algorithm>

namespace grammar {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
    std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
        return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
    });
    nodes_.assign(1, Node{});
    std::vector<std::uint32_t> open{0};  // nodes from the root to the last one
    std::string_view last;
    for (const Entry& entry : entries) {
        const auto differ = std::ranges::mismatch(last, entry.bytes);
        const auto common = static_cast<std::size_t>(differ.in1 - last.begin());
        for (; open.size() > common + 1; open.pop_back())
            nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
        for (std::size_t i = common; i < entry.bytes.size(); ++i) {
            open.push_back(static_cast<std::uint32_t>(nodes_.size()));
            nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()),
                              static_cast<std::uint16_t>(i + 1),
                              static_cast<std::uint8_t>(entry.bytes[i])});
        }
        tokens_.push_back({entry.token, entry.num_chars});
        max_depth_ = std::max(max_depth_, static_cast<std::uint16_t>(entry.bytes.size()));
        last = entry.bytes;
    }
    for (const std::uint32_t node : open)
        nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), 0, 0});
}

}  // namespace grammar
