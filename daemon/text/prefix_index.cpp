#include "daemon/text/prefix_index.hpp"

#include <algorithm>

namespace text {

PrefixIndex::PrefixIndex(const Vocabulary& vocabulary) {
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
        const TokenType type = vocabulary.type(id);
        if (type == TokenType::normal || type == TokenType::user_defined)
            entries_.push_back({vocabulary.text(id), id});
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.text < b.text; });
    std::size_t at = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
        starts_[byte] = at;
        while (at < entries_.size() &&
               static_cast<unsigned char>(entries_[at].text.front()) == byte)
            ++at;
    }
    starts_[256] = at;
}

void PrefixIndex::narrow(std::size_t index, char c, std::size_t& begin, std::size_t& end) const {
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = entries_.begin() + static_cast<std::ptrdiff_t>(end);
    const auto byte = [index](const Entry& entry) {
        return static_cast<unsigned char>(entry.text[index]);
    };
    const auto wanted = static_cast<unsigned char>(c);
    const auto low =
        std::partition_point(first, last, [&](const Entry& e) { return byte(e) < wanted; });
    const auto high =
        std::partition_point(low, last, [&](const Entry& e) { return byte(e) == wanted; });
    begin = static_cast<std::size_t>(low - entries_.begin());
    end = static_cast<std::size_t>(high - entries_.begin());
}

}  // namespace text
