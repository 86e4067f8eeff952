#include "daemon/text/special_splitter.hpp"

#include <algorithm>
#include <initializer_list>

namespace text {

namespace {

bool is_ascii_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool contains_any(std::string_view haystack, std::initializer_list<std::string_view> needles) {
    return std::any_of(needles.begin(), needles.end(), [&](std::string_view needle) {
        return haystack.find(needle) != std::string_view::npos;
    });
}

std::string ascii_lower(std::string_view s) {
    std::string out{s};
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocabulary& vocabulary, std::string_view model_name,
                                 std::string_view pre, std::string_view architecture) {
    // The file format has no place for these two flags, so they go by names.
    const std::string name = ascii_lower(model_name);
    const bool phi3 = contains_any(name, {"phi-3", "phi3"});
    const bool mask_takes_left = contains_any(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
                                 contains_any(architecture, {"nomic-bert-moe", "jina-bert-v3"});
    const bool modern_bert = contains_any(name, {"modern-bert"});

    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
        const TokenType type = vocabulary.type(id);
        const bool user_defined = type == TokenType::user_defined;
        if (!user_defined && type != TokenType::control && type != TokenType::unknown) continue;
        const std::string_view text = vocabulary.text(id);
        if (text.empty()) continue;
        Ending ending{.token = id, .user_defined = user_defined};
        ending.strip_right = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
        ending.strip_left =
            (mask_takes_left && text == "<mask>") || (modern_bert && text == "[MASK]");
        add(text, ending);
    }
}

void SpecialSplitter::add(std::string_view text, Ending ending) {
    is_first_[static_cast<unsigned char>(text.front())] = true;
    std::uint32_t node = 0;
    for (char c : text) {
        const std::uint64_t edge = std::uint64_t{node} * 256 + static_cast<unsigned char>(c);
        const auto [child, is_new] =
            children_.try_emplace(edge, static_cast<std::uint32_t>(nodes_.size()));
        if (is_new) nodes_.emplace_back();
        node = child->second;
    }
    nodes_[node] = ending;
}

const SpecialSplitter::Ending* SpecialSplitter::longest_at(std::string_view text,
                                                           bool parse_special,
                                                           std::size_t& bytes) const {
    const Ending* longest = nullptr;
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto child =
            children_.find(std::uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
        if (child == children_.end()) break;
        node = child->second;
        const Ending& ending = nodes_[node];
        if (ending.token == kNoToken || !(parse_special || ending.user_defined)) continue;
        longest = &ending;
        bytes = i + 1;
    }
    return longest;
}

std::vector<Fragment> SpecialSplitter::split(std::string_view text, bool parse_special,
                                             std::span<const TextRange> plain) const {
    std::vector<Fragment> out;
    std::size_t raw_begin = 0;
    // What users typed is no control token, nor part of one.
    const auto touches_plain = [&](std::size_t begin, std::size_t end) {
        while (!plain.empty() && plain.front().end <= begin) plain = plain.subspan(1);
        return !plain.empty() && plain.front().begin < end;
    };
    for (std::size_t i = 0; i < text.size();) {
        if (!is_first_[static_cast<unsigned char>(text[i])]) {
            ++i;
            continue;
        }
        std::size_t bytes = 0;
        const Ending* found = longest_at(text.substr(i), parse_special, bytes);
        if (found != nullptr && !found->user_defined && touches_plain(i, i + bytes))
            found = i < plain.front().begin
                        ? longest_at(text.substr(i, plain.front().begin - i), parse_special, bytes)
                        : longest_at(text.substr(i), false, bytes);
        if (found == nullptr) {
            ++i;
            continue;
        }
        std::size_t raw_end = i;
        if (found->strip_left)
            while (raw_end > raw_begin && is_ascii_space(text[raw_end - 1])) --raw_end;
        if (raw_end > raw_begin)
            out.push_back({kNoToken, text.substr(raw_begin, raw_end - raw_begin)});
        out.push_back({found->token, text.substr(i, bytes)});
        i += bytes;
        if (found->strip_right)
            while (i < text.size() && is_ascii_space(text[i])) ++i;
        raw_begin = i;
    }
    if (raw_begin < text.size()) out.push_back({kNoToken, text.substr(raw_begin)});
    return out;
}

}  // namespace text
