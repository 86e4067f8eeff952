#include "vocabulary.hpp"

#include <array>
#include <stdexcept>
#include <string_view>

namespace synth {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3;
constexpr std::string_view kControlTokens[] = {"<|begin|>", "<|end|>",       "<|system|>",
                                               "<|user|>",  "<|assistant|>", "<|tool|>",
                                               "<|pad|>",   "<|eom|>"};
constexpr std::string_view kLetters = "etaoinsrhldcumfpgwybvkxjqz";
constexpr std::string_view kSpace = "\u0120";  // how byte-level BPE spells a space

constexpr std::string_view kTemplate =
    "{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}";

std::string utf8(std::uint32_t code) {
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

/// The printable stand-in of each byte: itself where it is printable, else from U+0100 on.
std::vector<std::string> byte_tokens() {
    std::vector<std::string> tokens;
    std::uint32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
        const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        tokens.push_back(utf8(printable ? b : next++));
    }
    return tokens;
}

class Builder {
public:
    explicit Builder(std::size_t num_tokens) : wanted_{num_tokens} {
        vocabulary_.tokens = byte_tokens();
    }

    Vocabulary build() {
        // Words of one to four letters, then of a space and up to four: shorter ones first, so that
        // each merge joins two tokens that exist.
        std::vector<std::string> letters, words{std::string{kSpace}};
        for (const char c : kLetters) letters.emplace_back(1, c);
        std::vector<std::string> pairs = combine(letters, letters);
        const std::vector<std::string> starts = combine(words, letters);
        combine(starts, letters);
        combine(starts, pairs);
        combine(pairs, pairs);
        if (vocabulary_.tokens.size() < wanted_)
            throw std::invalid_argument{
                "vocabulary: at most " +
                std::to_string(vocabulary_.tokens.size() + std::size(kControlTokens)) + " tokens"};
        return std::move(vocabulary_);
    }

private:
    std::vector<std::string> combine(const std::vector<std::string>& left,
                                     const std::vector<std::string>& right) {
        std::vector<std::string> made;
        for (const std::string& a : left)
            for (const std::string& b : right) {
                if (vocabulary_.tokens.size() == wanted_) return made;
                made.push_back(a + b);
                vocabulary_.tokens.push_back(a + b);
                vocabulary_.merges.push_back(a + " " + b);
            }
        return made;
    }

    std::size_t wanted_;
    Vocabulary vocabulary_;
};

}  // namespace

Vocabulary make_vocabulary(std::uint32_t size) {
    if (size < kMinVocabulary)
        throw std::invalid_argument{"vocabulary: at least " + std::to_string(kMinVocabulary) +
                                    " tokens"};
    Vocabulary v = Builder{size - std::size(kControlTokens)}.build();
    v.types.assign(v.tokens.size(), kNormal);
    for (const std::string_view token : kControlTokens) {
        v.tokens.emplace_back(token);
        v.types.push_back(kControl);
    }
    const std::uint32_t first = size - static_cast<std::uint32_t>(std::size(kControlTokens));
    v.bos = first;
    v.eos = first + 1;
    v.eot = first + 3;  // <|user|>: the model's turn is over
    v.chat_template = kTemplate;
    return v;
}

}  // namespace synth
