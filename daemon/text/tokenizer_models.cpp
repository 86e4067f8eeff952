#include "daemon/text/bpe.hpp"
#include "daemon/text/pretokenizer.hpp"
#include "daemon/text/special_tokens.hpp"
#include "daemon/text/spm.hpp"
#include "daemon/text/tokenizer.hpp"
#include "daemon/text/ugm.hpp"
#include "daemon/text/wpm.hpp"

#include <string>
#include <utility>

namespace text {

namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kLowercaseKey = "tokenizer.ggml.normalizer.lowercase";
constexpr std::string_view kConfigKey = "model.pre_tokenizer";

/// What is set before the file's own keys are looked at.
struct ModelDefaults {
    SpecialDefaults ids;
    bool add_bos = false;
    bool add_eos = false;
    bool add_sep = false;
    bool add_space_prefix = false;
    bool always_bos = false;  // whatever the file says
};

std::string quoted_or_none(const std::string* value) {
    return value == nullptr ? "no such key" : "\"" + *value + "\"";
}

/// A default id that is an ordinary token in this vocabulary means nothing here.
std::int32_t if_special(std::int32_t id, const Vocabulary& vocabulary) {
    return vocabulary.type(id) == TokenType::control || vocabulary.text(id) == "<|endoftext|>"
               ? id
               : kNoToken;
}

/// @param missing_id  whether the token that would be added is unknown
bool read_add_flag(const base::Metadata& metadata, std::string_view key, bool fallback,
                   bool missing_id) {
    const std::optional<bool> wanted = metadata.find_bool(key);
    if (wanted.value_or(false) && missing_id)
        throw base::ModelError{std::string{key} +
                               ": expected false, since the file names no such token, found true"};
    return wanted.value_or(fallback) && !missing_id;
}

/// @param pre  the pre-tokenizer's name, "" for none
TokenizerParts read_parts(const base::Metadata& metadata, Vocabulary vocabulary,
                          const ModelDefaults& defaults, const OrdinaryTokens& ordinary,
                          std::string_view pre) {
    const auto string_of = [&](std::string_view key) -> std::string_view {
        const std::string* value = metadata.find_string(key);
        return value == nullptr ? std::string_view{} : *value;
    };
    const SpecialIds special = find_special_ids(metadata, defaults.ids, ordinary, vocabulary);
    std::vector<std::int32_t> eog = find_eog_ids(special, pre, ordinary, vocabulary);
    std::vector<std::int32_t> suppressed;
    if (const auto ids = metadata.find_ints("tokenizer.ggml.suppress_tokens"))
        for (const std::int64_t id : *ids)
            if (vocabulary.contains(id)) suppressed.push_back(static_cast<std::int32_t>(id));

    SpecialSplitter splitter{vocabulary, string_of("general.name"), pre,
                             string_of("general.architecture")};
    return {.vocabulary = std::move(vocabulary),
            .special = special,
            .eog_ids = std::move(eog),
            .suppressed_ids = std::move(suppressed),
            .add_bos = (defaults.always_bos && special.bos != kNoToken) ||
                       read_add_flag(metadata, "tokenizer.ggml.add_bos_token", defaults.add_bos,
                                     special.bos == kNoToken),
            .add_eos = read_add_flag(metadata, "tokenizer.ggml.add_eos_token", defaults.add_eos,
                                     special.eos == kNoToken),
            .add_sep = defaults.add_sep && special.sep != kNoToken,
            .add_space_prefix = metadata.find_bool("tokenizer.ggml.add_space_prefix")
                                    .value_or(defaults.add_space_prefix),
            .splitter = std::move(splitter)};
}

const std::vector<std::string>& merges_of(const base::Metadata& metadata) {
    const std::vector<std::string>* merges = metadata.find_strings("tokenizer.ggml.merges");
    if (merges == nullptr)
        throw base::ModelError{
            "tokenizer.ggml.merges: expected an array of strings, found no such key; a gpt2 "
            "tokenizer cannot work without it"};
    return *merges;
}

std::string_view pre_of(const base::Metadata& metadata) {
    const std::string* pre = metadata.find_string(kPreKey);
    return pre == nullptr ? std::string_view{} : *pre;
}

/// The row that the file names, or the operator where the file's own is of no use.
const PretokenizerRow& choose_pretokenizer(const base::Metadata& metadata,
                                           std::string_view configured) {
    const std::string* pre = metadata.find_string(kPreKey);
    const PretokenizerRow* row = pre == nullptr ? nullptr : find_pretokenizer(*pre);
    if (row != nullptr) {
        if (!configured.empty() && configured != *pre)
            throw base::ConfigError{std::string{kConfigKey} + ": got \"" + std::string{configured} +
                                    "\", but the model file names \"" + *pre +
                                    "\", which is known; leave the key empty"};
        return *row;
    }
    if (configured.empty())
        throw base::ModelError{
            std::string{kPreKey} +
            ": expected the name of a pre-tokenizer that is known here, found " +
            quoted_or_none(pre) +
            "; another one would give other tokens than the model was trained with, without any "
            "error. Convert the model again with a current converter, or name the one that the "
            "model was trained with in " +
            std::string{kConfigKey} + "\nknown: " + pretokenizer_names()};
    row = find_pretokenizer(configured);
    if (row == nullptr)
        throw base::ConfigError{
            std::string{kConfigKey} + ": got \"" + std::string{configured} +
            "\", want one of the names that are known\nknown: " + pretokenizer_names()};
    return *row;
}

PieceStyle piece_style(Spelling spelling) {
    switch (spelling) {
        case Spelling::byte_map:
            return PieceStyle::byte_map;
        case Spelling::underscore:
            return PieceStyle::underscore;
        case Spelling::plain:
            break;
    }
    return PieceStyle::plain;
}

std::unique_ptr<Tokenizer> make_bpe_with(const base::Metadata& metadata, const PretokenizerRow& row,
                                         ModelDefaults defaults, BpeOptions options) {
    Vocabulary vocabulary{metadata, piece_style(row.spelling)};
    // 11 is the end-of-text token of the first models of this kind, and a comma in others.
    const std::int32_t default_id = if_special(11, vocabulary);
    if (row.spelling == Spelling::byte_map) defaults.ids = {.bos = default_id, .eos = default_id};
    defaults.add_bos = row.add_bos;
    MergeTable merges{vocabulary, merges_of(metadata)};
    TokenizerParts parts =
        read_parts(metadata, std::move(vocabulary), defaults, merges.results(), row.pre);
    return make_bpe(std::move(parts), std::move(merges), row, options);
}

std::unique_ptr<Tokenizer> make_gpt2(const base::Metadata& metadata, TokenizerOptions options) {
    const PretokenizerRow& row = choose_pretokenizer(metadata, options.pre_tokenizer);
    return make_bpe_with(metadata, row, {}, {.nfc = row.nfc && options.normalize_nfc});
}

std::unique_ptr<Tokenizer> make_gemma4(const base::Metadata& metadata, TokenizerOptions) {
    return make_bpe_with(metadata, *find_pretokenizer("gemma4"), {.always_bos = true}, {});
}

std::unique_ptr<Tokenizer> make_whitespace(const base::Metadata& metadata, TokenizerOptions) {
    const bool lowercase = metadata.find_bool(kLowercaseKey).value_or(false);
    return make_bpe_with(metadata, *find_pretokenizer("whitespace"), {}, {.lowercase = lowercase});
}

std::unique_ptr<Tokenizer> make_llama(const base::Metadata& metadata, TokenizerOptions) {
    const ModelDefaults defaults{
        .ids = {.bos = 1, .eos = 2, .unk = 0}, .add_bos = true, .add_space_prefix = true};
    return make_spm(read_parts(metadata, Vocabulary{metadata, PieceStyle::underscore}, defaults, {},
                               pre_of(metadata)));
}

std::unique_ptr<Tokenizer> make_bert(const base::Metadata& metadata, TokenizerOptions) {
    const ModelDefaults defaults{.ids = {.bos = 101, .unk = 100, .sep = 102, .pad = 0, .mask = 103},
                                 .add_bos = true,
                                 .add_sep = true};
    WpmOptions options;
    options.lowercase = metadata.find_bool(kLowercaseKey).value_or(true);
    options.strip_accents =
        metadata.find_bool("tokenizer.ggml.normalizer.strip_accents").value_or(options.lowercase);
    return make_wpm(read_parts(metadata, Vocabulary{metadata, PieceStyle::underscore}, defaults, {},
                               pre_of(metadata)),
                    options);
}

/// The bytes of an array of 8-bit numbers, of either sign.
std::string bytes_of(const base::Metadata& metadata, std::string_view key) {
    std::string out;
    if (const auto numbers = metadata.find_ints(key))
        for (const std::int64_t number : *numbers)
            out.push_back(static_cast<char>(static_cast<unsigned char>(number)));
    return out;
}

std::unique_ptr<Tokenizer> make_t5(const base::Metadata& metadata, TokenizerOptions) {
    const ModelDefaults defaults{.ids = {.eos = 1, .unk = 2, .pad = 0}, .add_eos = true};
    UgmOptions options;
    options.remove_extra_whitespaces =
        metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
    return make_ugm(read_parts(metadata, Vocabulary{metadata, PieceStyle::underscore}, defaults, {},
                               pre_of(metadata)),
                    Charsmap{bytes_of(metadata, "tokenizer.ggml.precompiled_charsmap")}, options);
}

struct ModelRow {
    std::string_view model;
    std::unique_ptr<Tokenizer> (*make)(const base::Metadata&, TokenizerOptions);
};

// Another kind of tokenizer is a file of its own and a row here.
constexpr ModelRow kModels[] = {
    {"gpt2", make_gpt2}, {"llama", make_llama},   {"bert", make_bert},
    {"t5", make_t5},     {"gemma4", make_gemma4}, {"whitespace", make_whitespace},
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const base::Metadata& metadata,
                                          TokenizerOptions options) {
    const std::string* model = metadata.find_string(kModelKey);
    std::string known;
    for (const ModelRow& row : kModels) {
        if (model != nullptr && *model == row.model) return row.make(metadata, options);
        known.append(known.empty() ? "" : ", ").append(row.model);
    }
    throw base::ModelError{std::string{kModelKey} + ": expected one of " + known + ", found " +
                           quoted_or_none(model)};
}

}  // namespace text
