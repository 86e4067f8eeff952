#include "daemon/text/tokenizer.hpp"

#include "daemon/text/bpe.hpp"
#include "daemon/text/pretokenizer.hpp"
#include "daemon/text/special_tokens.hpp"
#include "daemon/text/spm.hpp"

#include <algorithm>
#include <utility>

namespace text {

namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";

class ErrorCategory final : public boost::system::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "text"; }
    [[nodiscard]] std::string message(int code) const override {
        switch (static_cast<Errc>(code)) {
            case Errc::text_too_long:
                return "the text is longer than 64 MiB";
            case Errc::regex_limit:
                return "the text needs too much work to be cut into words";
        }
        return "unknown text error";
    }
};

/// What is set before the file's own keys are looked at.
struct ModelDefaults {
    SpecialDefaults ids;
    bool add_bos = false;
    bool add_eos = false;
    bool add_space_prefix = false;
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

TokenizerParts read_parts(const base::Metadata& metadata, Vocabulary vocabulary,
                          const ModelDefaults& defaults, const OrdinaryTokens& ordinary) {
    const auto string_of = [&](std::string_view key) -> std::string_view {
        const std::string* value = metadata.find_string(key);
        return value == nullptr ? std::string_view{} : *value;
    };
    const std::string_view pre = string_of(kPreKey);
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
            .add_bos = read_add_flag(metadata, "tokenizer.ggml.add_bos_token", defaults.add_bos,
                                     special.bos == kNoToken),
            .add_eos = read_add_flag(metadata, "tokenizer.ggml.add_eos_token", defaults.add_eos,
                                     special.eos == kNoToken),
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

std::unique_ptr<Tokenizer> make_gpt2(const base::Metadata& metadata, TokenizerOptions options) {
    const std::string* pre = metadata.find_string(kPreKey);
    const PretokenizerRow* row = pre == nullptr ? nullptr : find_pretokenizer(*pre);
    if (row == nullptr)
        throw base::ModelError{
            std::string{kPreKey} +
            ": expected the name of a pre-tokenizer that is known here, found " +
            quoted_or_none(pre) +
            "; another one would give other tokens than the model was trained with, without any "
            "error. Convert the model again with a current converter"};

    Vocabulary vocabulary{metadata, PieceStyle::byte_map};
    // 11 is the end-of-text token of the first models of this kind, and a comma in others.
    const std::int32_t default_id = if_special(11, vocabulary);
    ModelDefaults defaults{.ids = {.bos = default_id, .eos = default_id}, .add_bos = row->add_bos};
    MergeTable merges{vocabulary, merges_of(metadata)};
    TokenizerParts parts = read_parts(metadata, std::move(vocabulary), defaults, merges.results());
    return make_bpe(std::move(parts), std::move(merges), *row, options);
}

std::unique_ptr<Tokenizer> make_llama(const base::Metadata& metadata, TokenizerOptions) {
    const ModelDefaults defaults{
        .ids = {.bos = 1, .eos = 2, .unk = 0}, .add_bos = true, .add_space_prefix = true};
    return make_spm(
        read_parts(metadata, Vocabulary{metadata, PieceStyle::underscore}, defaults, {}));
}

struct ModelRow {
    std::string_view model;
    std::unique_ptr<Tokenizer> (*make)(const base::Metadata&, TokenizerOptions);
};

// Another kind of tokenizer is a file of its own and a row here.
constexpr ModelRow kModels[] = {
    {"gpt2", make_gpt2},
    {"llama", make_llama},
};

}  // namespace

const boost::system::error_category& error_category() noexcept {
    static const ErrorCategory category;
    return category;
}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_{std::move(parts)} {}

bool Tokenizer::is_eog(std::int32_t id) const noexcept {
    return std::binary_search(parts_.eog_ids.begin(), parts_.eog_ids.end(), id);
}

base::Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                          EncodeOptions options) const {
    if (text.size() > kMaxTextBytes) return Errc::text_too_long;
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3 + 2);
    if (options.add_special && add_bos()) ids.push_back(special().bos);
    for (const Fragment& fragment : parts_.splitter.split(text, options.parse_special)) {
        if (fragment.token != kNoToken)
            ids.push_back(fragment.token);
        else if (const auto error = encode_fragment(fragment.text, ids))
            return error;
    }
    if (options.add_special && add_eos()) ids.push_back(special().eos);
    return ids;
}

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
