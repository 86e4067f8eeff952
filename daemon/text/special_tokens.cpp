#include "daemon/text/special_tokens.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <string>

namespace text {

namespace {

using std::string_view;

struct KeyRow {
    string_view key;
    std::int32_t SpecialIds::*id;
};

// Later rows win: the current name of a key over its older one.
constexpr KeyRow kKeys[] = {
    {"tokenizer.ggml.bos_token_id", &SpecialIds::bos},
    {"tokenizer.ggml.eos_token_id", &SpecialIds::eos},
    {"tokenizer.ggml.eot_token_id", &SpecialIds::eot},
    {"tokenizer.ggml.eom_token_id", &SpecialIds::eom},
    {"tokenizer.ggml.unknown_token_id", &SpecialIds::unk},
    {"tokenizer.ggml.seperator_token_id", &SpecialIds::sep},  // the format's own spelling
    {"tokenizer.ggml.padding_token_id", &SpecialIds::pad},
    {"tokenizer.ggml.mask_token_id", &SpecialIds::mask},
    {"tokenizer.ggml.prefix_token_id", &SpecialIds::fim_pre},
    {"tokenizer.ggml.suffix_token_id", &SpecialIds::fim_suf},
    {"tokenizer.ggml.middle_token_id", &SpecialIds::fim_mid},
    {"tokenizer.ggml.fim_pre_token_id", &SpecialIds::fim_pre},
    {"tokenizer.ggml.fim_suf_token_id", &SpecialIds::fim_suf},
    {"tokenizer.ggml.fim_mid_token_id", &SpecialIds::fim_mid},
    {"tokenizer.ggml.fim_pad_token_id", &SpecialIds::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", &SpecialIds::fim_rep},
    {"tokenizer.ggml.fim_sep_token_id", &SpecialIds::fim_sep},
};

constexpr string_view kEot[] = {
    "<|eot_id|>",        "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>",   "<EOT>",      "_<EOT>",  "[EOT]",         "<｜end▁of▁sentence｜>",
    "<end_of_utterance>"};
constexpr string_view kEom[] = {"<|eom_id|>"};
constexpr string_view kFimPre[] = {"<|fim_prefix|>",  "<fim-prefix>", "<fim_prefix>",
                                   "<｜fim▁begin｜>", "<PRE>",        "▁<PRE>",
                                   "<|code_prefix|>", "<|prefix|>"};
constexpr string_view kFimSuf[] = {"<|fim_suffix|>",  "<fim-suffix>", "<fim_suffix>",
                                   "<｜fim▁hole｜>",  "<SUF>",        "▁<SUF>",
                                   "<|code_suffix|>", "<|suffix|>"};
constexpr string_view kFimMid[] = {"<|fim_middle|>",  "<fim-middle>", "<fim_middle>",
                                   "<｜fim▁end｜>",   "<MID>",        "▁<MID>",
                                   "<|code_middle|>", "<|middle|>"};
constexpr string_view kFimPad[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr string_view kFimRep[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                   "<reponame>"};
constexpr string_view kFimSep[] = {"<|file_sep|>"};

struct TextRow {
    std::int32_t SpecialIds::*id;
    std::span<const string_view> texts;  // the first one in the vocabulary counts
};

constexpr TextRow kTexts[] = {
    {&SpecialIds::eot, kEot},        {&SpecialIds::eom, kEom},
    {&SpecialIds::fim_pre, kFimPre}, {&SpecialIds::fim_suf, kFimSuf},
    {&SpecialIds::fim_mid, kFimMid}, {&SpecialIds::fim_pad, kFimPad},
    {&SpecialIds::fim_rep, kFimRep}, {&SpecialIds::fim_sep, kFimSep},
};

// Every token with one of these texts ends a reply, and is a control token.
constexpr string_view kEog[] = {"<|eot_id|>",
                                "<|im_end|>",
                                "<|end|>",
                                "<|return|>",
                                "<|call|>",
                                "<|flush|>",
                                "<|calls|>",
                                "<end_of_turn>",
                                "<|endoftext|>",
                                "</s>",
                                "<|eom_id|>",
                                "<EOT>",
                                "_<EOT>",
                                "[EOT]",
                                "[EOS]",
                                "<|end_of_text|>",
                                "<end_of_utterance>",
                                "<eos>",
                                "<turn|>",
                                "<|tool_response>",
                                "<｜end▁of▁sentence｜>",
                                "[e~["};

// Converters of GLM files write these as eot and eom; files without the keys would never stop.
constexpr string_view kGlmEog[] = {"<|user|>", "<|observation|>"};

// Harmony's structure marks: printed, so that the reply's channels can be told apart.
constexpr string_view kHarmonyMarks[] = {"<|channel|>", "<|message|>", "<|start|>",
                                         "<|constrain|>"};

/// The id of a well-known mark, or kNoToken.
std::int32_t find_mark(string_view text, const OrdinaryTokens& ordinary,
                       const Vocabulary& vocabulary) {
    const std::int32_t id = vocabulary.find(text);
    if (id == kNoToken || ordinary.empty()) return id;
    const bool is_ordinary =
        vocabulary.type(id) == TokenType::normal && ordinary[static_cast<std::size_t>(id)];
    return is_ordinary ? kNoToken : id;
}

}  // namespace

SpecialIds find_special_ids(const base::Metadata& metadata, const SpecialDefaults& defaults,
                            const OrdinaryTokens& ordinary, Vocabulary& vocabulary) {
    const auto known = [&](std::int32_t id) { return vocabulary.contains(id) ? id : kNoToken; };
    SpecialIds special;
    special.bos = known(defaults.bos);
    special.eos = known(defaults.eos);
    special.unk = known(defaults.unk);
    special.sep = known(defaults.sep);
    special.pad = known(defaults.pad);
    special.mask = known(defaults.mask);

    for (const KeyRow& row : kKeys)
        if (const auto id = metadata.find_int(row.key); id && vocabulary.contains(*id))
            special.*row.id = static_cast<std::int32_t>(*id);

    for (const TextRow& row : kTexts) {
        if (special.*row.id != kNoToken) continue;
        for (const string_view text : row.texts) {
            const std::int32_t id = find_mark(text, ordinary, vocabulary);
            if (id == kNoToken) continue;
            special.*row.id = id;
            vocabulary.set_type(id, TokenType::control);
            break;
        }
    }
    return special;
}

std::vector<std::int32_t> find_eog_ids(const SpecialIds& special, string_view pre,
                                       const OrdinaryTokens& ordinary, Vocabulary& vocabulary) {
    std::set<std::int32_t> eog{special.fim_pad, special.fim_rep, special.fim_sep,
                               special.eos,     special.eot,     special.eom};
    for (const string_view text : kEog) {
        const std::int32_t id = find_mark(text, ordinary, vocabulary);
        if (id == kNoToken) continue;
        eog.insert(id);
        vocabulary.set_type(id, TokenType::control);
    }
    if (pre == "glm4" || pre == "chatglm-bpe")
        for (const string_view text : kGlmEog) eog.insert(vocabulary.find(text));
    eog.erase(kNoToken);

    const auto in_set = [&](string_view text) { return eog.contains(vocabulary.find(text)); };
    const bool harmony = in_set("<|return|>") && in_set("<|call|>");
    const bool solar = (in_set("<|call|>") || in_set("<|calls|>")) && in_set("<|flush|>");
    if ((harmony || solar) && in_set("<|end|>")) {
        const std::int32_t end = vocabulary.find("<|end|>");
        eog.erase(end);
        vocabulary.set_type(end, TokenType::user_defined);
    }
    if (harmony)
        for (const string_view text : kHarmonyMarks)
            if (const std::int32_t id = vocabulary.find(text); id != kNoToken)
                vocabulary.set_type(id, TokenType::user_defined);
    if (in_set("<|tool_response>") && in_set("</s>")) {
        const std::int32_t end = vocabulary.find("</s>");
        eog.erase(end);
        vocabulary.set_type(end, TokenType::normal);
    }
    return {eog.begin(), eog.end()};
}

}  // namespace text
