#include "daemon/text/pretokenizer.hpp"

// The patterns are those of the models' own tokenizer.json files, written for PCRE2: every row
// gives the pieces that the model was trained with.

namespace text {

namespace {

using std::string_view;

// clang-format off

constexpr string_view kDefault[] = {
    R"re([\p{P}\$\+<=>\^~\|]+)re",
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
    R"re(\p{N}+)re",
    R"re([0-9][0-9][0-9])re",
};

constexpr string_view kMinicpm5[] = {
    R"re(\p{N}{1,3})re",
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kLlama3[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kDeepseekLlm[] = {
    R"re([\r\n])re",
    R"re(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)re",
    R"re(\s?[!-/:-~！-／：-～‘-‟　-。]+)re",
    R"re(\s+\z)re",
    R"re([一-龥ࠀ-一가-퟿]+)re",
    R"re(\p{N}+)re",
};

constexpr string_view kDeepseekCoder[] = {
    R"re([\r\n])re",
    R"re(\s?\p{L}+)re",
    R"re(\s?\p{P}+)re",
    R"re([一-龥ࠀ-一가-퟿]+)re",
    R"re(\p{N})re",
};

constexpr string_view kDeepseekV3[] = {
    R"re(\p{N}{1,3})re",
    R"re([一-龥぀-ゟ゠-ヿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kYoutu[] = {
    R"re([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)re",
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kFalcon[] = {
    R"re([\p{P}\$\+<=>\^~\|`]+)re",
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
    R"re([0-9][0-9][0-9])re",
};

constexpr string_view kMpt[] = {
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kStarcoder[] = {
    R"re(\p{N})re",
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kJais2[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})re",
};

constexpr string_view kQwen2[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kQwen35[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kPoroChat[] = {
    R"re( ?[^(\s|.,!?…。，、।۔،)]+)re",
};

constexpr string_view kViking[] = {
    R"re( ?[^(\s|.,!?…。，、।۔،)]+)re",
    R"re(\p{N})re",
};

constexpr string_view kTekken[] = {
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kExaoneMoe[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)re",
};

constexpr string_view kChameleon[] = {
    R"re(<sentinel:[0-9]+>)re",
    R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re",
    R"re(([\t\n]|    |  ))re",
    R"re(\p{N})re",
    R"re([\p{P}!-/:-@\[-`{-~])re",
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kGpt4o[] = {
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kTinyAya[] = {
    R"re(\d{1,3}(?=(?:\d{3})*\b))re",
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kSuperbpe[] = {
    R"re(\p{N}+)re",
    R"re((?=(\d{3})+(?!\d)))re",
};

constexpr string_view kBailingmoe[] = {
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re",
};

constexpr string_view kSeedCoder[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kKimiK2[] = {
    R"re(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kAfmoe[] = {
    R"re(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))re",
    R"re([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kLaguna[] = {
    R"re([^\n]+|[\n]+)re",
    R"re((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr string_view kGemma4[] = {R"re([^\n]+|[\n]+)re"};

constexpr string_view kWhitespace[] = {R"re(\S+)re"};

constexpr PretokenizerRow kTable[] = {
    {.pre = "default", .patterns = kDefault},
    {.pre = "minicpm5", .patterns = kMinicpm5, .ignore_merges = true},
    {.pre = "llama3", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "llama-v3", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "llama-bpe", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "falcon3", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "falcon-h1", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "pixtral", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "midm-2.0", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "lfm2", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "jina-v5-nano", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.pre = "dbrx", .patterns = kLlama3},
    {.pre = "smaug-bpe", .patterns = kLlama3},
    {.pre = "glm4", .patterns = kLlama3},
    {.pre = "chatglm-bpe", .patterns = kLlama3},
    {.pre = "deepseek-llm", .patterns = kDeepseekLlm},
    {.pre = "deepseek-coder", .patterns = kDeepseekCoder},
    {.pre = "deepseek-v3", .patterns = kDeepseekV3},
    {.pre = "hunyuan-dense", .patterns = kDeepseekV3},
    {.pre = "joyai-llm", .patterns = kDeepseekV3},
    {.pre = "youtu", .patterns = kYoutu, .ignore_merges = true},
    {.pre = "falcon", .patterns = kFalcon},
    {.pre = "mpt", .patterns = kMpt},
    {.pre = "gpt-2", .patterns = kMpt},
    {.pre = "phi-2", .patterns = kMpt},
    {.pre = "jina-es", .patterns = kMpt},
    {.pre = "jina-de", .patterns = kMpt},
    {.pre = "gigachat", .patterns = kMpt},
    {.pre = "jina-v2-es", .patterns = kMpt},
    {.pre = "jina-v2-de", .patterns = kMpt},
    {.pre = "a.x-4.0", .patterns = kMpt},
    {.pre = "mellum", .patterns = kMpt},
    {.pre = "modern-bert", .patterns = kMpt},
    {.pre = "exaone4", .patterns = kMpt},
    {.pre = "jina-v1-en", .patterns = kMpt},
    {.pre = "jina-v2-code", .patterns = kMpt},
    {.pre = "roberta-bpe", .patterns = kMpt},
    {.pre = "olmo", .patterns = kMpt},
    {.pre = "jais", .patterns = kMpt},
    {.pre = "trillion", .patterns = kMpt},
    {.pre = "granite-docling", .patterns = kMpt},
    {.pre = "starcoder", .patterns = kStarcoder},
    {.pre = "refact", .patterns = kStarcoder},
    {.pre = "command-r", .patterns = kStarcoder},
    {.pre = "smollm", .patterns = kStarcoder},
    {.pre = "codeshell", .patterns = kStarcoder},
    {.pre = "exaone", .patterns = kStarcoder},
    {.pre = "minerva-7b", .patterns = kStarcoder},
    {.pre = "mellum2", .patterns = kStarcoder},
    {.pre = "jais-2", .patterns = kJais2},
    {.pre = "qwen2", .patterns = kQwen2, .nfc = true},
    {.pre = "deepseek-r1-qwen", .patterns = kQwen2, .nfc = true},
    {.pre = "kormo", .patterns = kQwen2, .nfc = true},
    {.pre = "f2llmv2", .patterns = kQwen2, .nfc = true},
    {.pre = "stablelm2", .patterns = kQwen2},
    {.pre = "megrez", .patterns = kQwen2, .nfc = true},
    {.pre = "hunyuan", .patterns = kQwen2},
    {.pre = "grok-2", .patterns = kQwen2},
    {.pre = "solar-open", .patterns = kQwen2},
    {.pre = "qwen35", .patterns = kQwen35},
    {.pre = "poro-chat", .patterns = kPoroChat},
    {.pre = "bloom", .patterns = kPoroChat},
    {.pre = "gpt3-finnish", .patterns = kPoroChat},
    {.pre = "viking", .patterns = kViking},
    {.pre = "tekken", .patterns = kTekken, .add_bos = true, .ignore_merges = true},
    {.pre = "exaone-moe", .patterns = kExaoneMoe},
    {.pre = "chameleon", .patterns = kChameleon, .add_bos = true},
    {.pre = "gpt-4o", .patterns = kGpt4o},
    {.pre = "llama4", .patterns = kGpt4o},
    {.pre = "kanana2", .patterns = kGpt4o},
    {.pre = "talkie", .patterns = kGpt4o},
    {.pre = "granite-embed-multi-97m", .patterns = kGpt4o, .ignore_merges = true},
    {.pre = "minimax-m2", .patterns = kGpt4o},
    {.pre = "tiny_aya", .patterns = kTinyAya},
    {.pre = "cohere2moe", .patterns = kTinyAya},
    {.pre = "superbpe", .patterns = kSuperbpe},
    {.pre = "bailingmoe", .patterns = kBailingmoe},
    {.pre = "bailingmoe2", .patterns = kBailingmoe},
    {.pre = "llada-moe", .patterns = kBailingmoe},
    {.pre = "seed-coder", .patterns = kSeedCoder},
    {.pre = "kimi-k2", .patterns = kKimiK2},
    {.pre = "afmoe", .patterns = kAfmoe},
    {.pre = "laguna", .patterns = kLaguna},
    {.pre = "gemma4", .patterns = kGemma4, .spelling = Spelling::underscore, .whole_newlines = true},
    {.pre = "granite-embed-multi-311m", .patterns = kGemma4, .spelling = Spelling::underscore, .whole_newlines = true},
    {.pre = "sarvam-moe", .patterns = kGemma4, .spelling = Spelling::underscore},
    {.pre = "whitespace", .patterns = kWhitespace, .spelling = Spelling::plain},
};
// clang-format on

}  // namespace

std::span<const PretokenizerRow> pretokenizer_table() {
    return kTable;
}

}  // namespace text
