#pragma once

#include "daemon/text/vocabulary.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace text {

/// The tokens that plain text may become, in the order of their bytes: finds those that a text
/// begins with. Views the vocabulary, which must outlive it and stay where it is.
class PrefixIndex {
public:
    /// Normal and user-defined tokens; the others only stand for something else.
    explicit PrefixIndex(const Vocabulary& vocabulary);

    /// Calls visit(id, bytes) for each token that the text begins with, shortest first.
    /// O(length of the longest such token times log vocab_size).
    template <class Visit>
    void for_each_prefix(std::string_view text, Visit&& visit) const {
        if (text.empty()) return;
        const auto first = static_cast<unsigned char>(text.front());
        std::size_t begin = starts_[first], end = starts_[first + 1];
        for (std::size_t bytes = 1; begin < end; ++bytes) {
            // Everything in [begin, end) begins with text[0, bytes); the shortest comes first.
            if (entries_[begin].text.size() == bytes) visit(entries_[begin++].id, bytes);
            if (bytes == text.size()) return;
            narrow(bytes, text[bytes], begin, end);
        }
    }

private:
    struct Entry {
        std::string_view text;
        std::int32_t id = kNoToken;
    };

    /// Keeps those of [begin, end) whose byte at `index` is c.
    void narrow(std::size_t index, char c, std::size_t& begin, std::size_t& end) const;

    std::vector<Entry> entries_;             // ascending
    std::array<std::size_t, 257> starts_{};  // by first byte: [starts_[b], starts_[b + 1])
};

}  // namespace text
