#include "daemon/text/charsmap.hpp"

#include "daemon/base/error.hpp"

namespace text {

namespace {

constexpr std::uint32_t kValueBit = std::uint32_t{1} << 31;

std::uint32_t read_u32(std::string_view bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
        value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return value;
}

std::uint32_t base_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) != 0 ? 8 : 0);
}
bool has_value_below(std::uint32_t unit) {
    return (unit & (1u << 8)) != 0;
}
std::uint32_t label_of(std::uint32_t unit) {
    return unit & (kValueBit | 0xFF);  // a unit that holds a value is no byte's
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
    if (blob.empty()) return;
    const auto refuse = [](const std::string& what) {
        throw base::ModelError{"tokenizer.ggml.precompiled_charsmap: " + what};
    };
    if (blob.size() < 4) refuse("expected at least 4 bytes, found " + std::to_string(blob.size()));
    const std::uint32_t trie_bytes = read_u32(blob);
    blob.remove_prefix(4);
    if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size())
        refuse("expected a trie of whole 4-byte units within the " + std::to_string(blob.size()) +
               " bytes that follow, found a size of " + std::to_string(trie_bytes));
    for (std::size_t at = 0; at < trie_bytes; at += 4) units_.push_back(read_u32(blob.substr(at)));
    replacements_ = blob.substr(trie_bytes);
    if (replacements_.empty() || replacements_.back() != '\0')
        refuse("expected replacements that each end in a NUL byte, found that the last does not");
}

Charsmap::Match Charsmap::longest_at(std::string_view text) const noexcept {
    Match longest;
    if (units_.empty()) return longest;
    std::size_t at = base_of(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        at ^= byte;
        if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) break;
        const std::uint32_t unit = units_[at];
        at ^= base_of(unit);
        if (!has_value_below(unit)) continue;
        if (at >= units_.size()) break;
        const std::size_t value = units_[at] & ~kValueBit;
        if (value >= replacements_.size()) break;
        longest = {i + 1, std::string_view{replacements_.data() + value}};  // NUL at the very end
    }
    return longest;
}

}  // namespace text
