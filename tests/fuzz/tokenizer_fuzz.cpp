// Any bytes at all as a text, for each kind of tokenizer: ids within the vocabulary that print the
// text again (as far as the kind keeps it), and a stream that is well-formed and says the same
// however its bytes are cut. Also any bytes as token ids, and as a charsmap.
//
// Byte 0 chooses the tokenizer and the options; the text follows.

#include "daemon/base/check.hpp"
#include "daemon/text/charsmap.hpp"
#include "daemon/text/detokenizer.hpp"
#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Kind {
    std::unique_ptr<text::Tokenizer> tokenizer;
    bool keeps_all = false;  // every text is in the vocabulary
};

base::Metadata unigram() {
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"t5"});
    metadata.set("tokenizer.ggml.add_space_prefix", true);
    tiny_vocab::set_tokens(metadata, {{"<pad>", 3},
                                      {"</s>", 3},
                                      {"<unk>", 2},
                                      {"\u2581", 1, -1},
                                      {"a", 1, -2},
                                      {"ab", 1, -3},
                                      {"\u2581a", 1, -2.5},
                                      {"\u00e9", 1, -4}});
    return metadata;
}

base::Metadata word_piece() {
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"bert"});
    tiny_vocab::set_tokens(
        metadata, {{"[UNK]", 2}, {"[CLS]", 3}, {"\u2581a"}, {"b"}, {"\u2581e"}, {"\u2581!"}});
    metadata.set("tokenizer.ggml.unknown_token_id", std::int64_t{0});
    return metadata;
}

std::vector<Kind> make_kinds() {
    const std::vector<tiny_vocab::Token> marks{{"<|end|>", 3}, {"<tool>", 4}, {"ab"}, {"\u0120a"}};
    std::vector<Kind> kinds;
    for (const char* pre : {"glm4", "qwen2", "deepseek-v3", "gpt-4o", "superbpe", "llama-bpe"})
        kinds.push_back(
            {text::make_tokenizer(tiny_vocab::bpe(marks, {"a b", "\u0120 a"}, pre)), true});
    kinds.push_back({text::make_tokenizer(tiny_vocab::spm()), true});
    base::Metadata characters = tiny_vocab::spm({{"\u2581", 1}, {"a", 1}, {"ab", 1}});
    characters.set("tokenizer.ggml.model", std::string{"gemma4"});
    characters.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    kinds.push_back({text::make_tokenizer(characters), true});
    kinds.push_back({text::make_tokenizer(unigram()), false});
    kinds.push_back({text::make_tokenizer(word_piece()), false});
    return kinds;
}

void check_stream(const text::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    text::Detokenizer detokenizer{tokenizer, {.render_special = true}};
    std::string bytes, streamed;
    for (const std::int32_t id : ids) {
        bytes.append(tokenizer.token_piece(id, true));
        streamed.append(detokenizer.push(id));
        CHECK(text::is_valid_utf8(streamed));
    }
    streamed.append(detokenizer.flush());
    text::Utf8Stream whole;
    std::string joined = whole.push(bytes);
    CHECK(joined.append(whole.flush()) == streamed && text::is_valid_utf8(streamed));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static const std::vector<Kind> kinds = make_kinds();
    const Kind& kind = kinds[data[0] % 16 % kinds.size()];
    const text::Tokenizer& tokenizer = *kind.tokenizer;
    const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
    const bool parse_special = (data[0] & 16) != 0;
    const text::TextRange middle{text.size() / 3, text.size() * 2 / 3};
    const auto ids = tokenizer.encode(
        text,
        {.add_special = (data[0] & 32) != 0,
         .parse_special = parse_special,
         .plain = std::span{&middle, (data[0] & 64) != 0 && middle.begin < middle.end ? 1u : 0u}});
    if (ids) {
        for (const std::int32_t id : *ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
        check_stream(tokenizer, *ids);
    } else {
        CHECK(ids.error() == text::Errc::regex_limit);
    }
    if (const auto plain = tokenizer.encode(text)) {
        std::string expected = tokenizer.canonical(text).value();
        std::string pieces;
        for (const std::int32_t id : *plain) pieces.append(tokenizer.token_piece(id));
        // Where spaces are spelled U+2581, that character is a space too.
        for (std::size_t at; tokenizer.find("\u2581") != text::kNoToken &&
                             (at = expected.find("\u2581")) != expected.npos;)
            expected.replace(at, 3, " ");
        CHECK(kind.keeps_all ? pieces == expected : text::is_valid_utf8(expected));
    }
    std::vector<std::int32_t> any;
    for (std::size_t i = 0; i + 1 < size; i += 2)
        any.push_back(static_cast<std::int32_t>(data[i] | data[i + 1] << 8) - 100);
    check_stream(tokenizer, any);
    try {
        const text::Charsmap map{text};
        for (std::size_t at = 0; at < text.size(); ++at)
            CHECK(map.longest_at(text.substr(at)).bytes <= text.size() - at);
    } catch (const base::ModelError&) {  // refused with words
    }
    return 0;
}
