#include "daemon/text/merge_table.hpp"

#include "daemon/base/error.hpp"
#include "daemon/text/byte_map.hpp"
#include "daemon/text/utf8.hpp"

#include <bit>

namespace text {

namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
           static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary, const std::vector<std::string>& merges) {
    std::unordered_map<std::string, std::int32_t> extra;  // texts that are no token
    const auto symbol = [&](std::string_view text) {
        if (const std::int32_t token = vocabulary.find(text); token != kNoToken) return token;
        const auto next =
            static_cast<std::int32_t>(vocabulary.size() + static_cast<std::int64_t>(extra.size()));
        return extra.try_emplace(std::string{text}, next).first->second;
    };

    slots_.resize(std::bit_ceil(2 * merges.size() + 2));
    results_.resize(static_cast<std::size_t>(vocabulary.size()));
    std::string joined;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string_view entry = merges[rank];
        const std::size_t space = entry.find(' ', 1);  // a left part may begin with a space
        if (space == std::string_view::npos || space + 1 == entry.size())
            throw base::ModelError{"tokenizer.ggml.merges: expected \"left right\", found \"" +
                                   merges[rank] + "\" as merge " + std::to_string(rank)};
        const std::string_view left = entry.substr(0, space), right = entry.substr(space + 1);
        joined.assign(left).append(right);
        const std::uint64_t pair = pair_key(symbol(left), symbol(right));
        Slot& slot = slots_[slot_of(pair)];
        if (slot.pair == pair) continue;
        const std::int32_t merged = symbol(joined);
        slot = {pair, {static_cast<std::int32_t>(rank), merged}};
        if (vocabulary.contains(merged)) results_[static_cast<std::size_t>(merged)] = true;
    }

    for (int byte = 0; byte < 256; ++byte) {
        const std::string_view character = byte_to_character(static_cast<unsigned char>(byte));
        byte_symbols_[byte] = vocabulary.find(character);
        if (byte_symbols_[byte] != kNoToken) continue;
        if (const auto known = extra.find(std::string{character}); known != extra.end())
            byte_symbols_[byte] = known->second;
    }
    for (const auto& [text, symbol_id] : extra)
        if (first_character(text).bytes == text.size()) characters_.emplace(text, symbol_id);
}

std::int32_t MergeTable::character_symbol(const Vocabulary& vocabulary,
                                          std::string_view character) const {
    if (const std::int32_t token = vocabulary.find(character); token != kNoToken) return token;
    const auto known = characters_.find(std::string{character});
    return known == characters_.end() ? -1 : known->second;
}

MergeTable::Merge MergeTable::find(std::int32_t left, std::int32_t right) const noexcept {
    if (left < 0 || right < 0) return {};
    const std::uint64_t pair = pair_key(left, right);
    const Slot& slot = slots_[slot_of(pair)];
    return slot.pair == pair ? slot.merge : Merge{};
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const noexcept {
    std::uint64_t hash = pair * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads nearby ids
    hash ^= hash >> 29;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash) & mask;
    while (slots_[at].pair != kNoPair && slots_[at].pair != pair) at = (at + 1) & mask;
    return at;
}

}  // namespace text
