#include "conventions.hpp"

#include "text.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace gguf {
namespace {

constexpr std::int64_t kMaxBlocks = 512;
constexpr std::int64_t kMaxExperts = 1024;
constexpr std::size_t kMaxArchitectureBytes = 64;

std::string num(std::uint64_t n) {
    return std::to_string(n);
}

std::string describe_type(const KeyValue& kv) {
    return kv.is_array() ? std::string{"an array of "} + type_name(kv.item_type)
                         : type_name(kv.type);
}

class Checker {
public:
    Checker(const Header& header, std::string_view name) : header_{header}, name_{name} {}

    void check() {
        check_architecture();
        check_hyperparameters();
        check_tokenizer();
    }

private:
    [[noreturn]] void fail(const KeyValue& kv, const std::string& words) const {
        refuse(name_, "key " + quoted(kv.key) + " at byte " + num(kv.offset) + ": " + words);
    }
    [[noreturn]] void fail_type(const KeyValue& kv, const char* expected) const {
        fail(kv, std::string{"wrong type: expected "} + expected + ", found " + describe_type(kv));
    }

    [[nodiscard]] const KeyValue* find_arch(const char* suffix) const {
        return header_.find(std::string{architecture_} + "." + suffix);
    }

    [[nodiscard]] std::int64_t int_in_range(const KeyValue& kv, std::uint64_t i, std::int64_t min,
                                            std::int64_t max) const {
        if (!is_integer(kv.item_type)) fail_type(kv, kv.is_array() ? "integers" : "an integer");
        const auto value = int_item(kv, i);
        if (!value || *value < min || *value > max)
            fail(kv, "bad value: expected " + std::to_string(min) + " to " + std::to_string(max) +
                         ", found " + (value ? std::to_string(*value) : "2^63 or more") +
                         (kv.is_array() ? " as item " + num(i) : ""));
        return *value;
    }

    [[nodiscard]] std::optional<std::int64_t> find_int(const char* suffix, std::int64_t min,
                                                       std::int64_t max) const {
        const KeyValue* kv = find_arch(suffix);
        if (kv == nullptr) return std::nullopt;
        if (kv->is_array()) fail_type(*kv, "an integer");
        return int_in_range(*kv, 0, min, max);
    }

    void check_architecture();
    void check_hyperparameters() const;
    void check_scalar_or_per_layer(const char* suffix, std::int64_t min_scalar,
                                   std::optional<std::int64_t> num_blocks,
                                   std::int64_t num_nextn) const;
    void check_head_groups() const;
    void check_tokenizer() const;
    void check_token_array(const char* key, bool floats, std::uint64_t num_tokens) const;
    void check_merges() const;
    void check_charsmap() const;

    const Header& header_;
    std::string_view name_;
    std::string_view architecture_;
};

// ---- general ----------------------------------------------------------------------------

void Checker::check_architecture() {
    const KeyValue* kv = header_.find("general.architecture");
    if (kv == nullptr)
        refuse(name_, "key \"general.architecture\" is missing: this is not a model file");
    if (kv->type != ValueType::string) fail_type(*kv, "a string");
    const std::string_view arch = kv->payload;
    const bool well_formed = std::all_of(arch.begin(), arch.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (arch.empty() || arch.size() > kMaxArchitectureBytes || !well_formed)
        fail(*kv, "bad architecture name: expected 1 to 64 of a-z 0-9 _ -, found " + quoted(arch));
    architecture_ = arch;
}

// ---- <arch>.* ---------------------------------------------------------------------------

void Checker::check_hyperparameters() const {
    const auto num_blocks = find_int("block_count", 1, kMaxBlocks);
    const std::int64_t num_nextn = find_int("nextn_predict_layers", 0, kMaxBlocks).value_or(0);
    for (const char* suffix :
         {"context_length", "embedding_length", "attention.key_length", "attention.value_length",
          "attention.key_length_mla", "attention.value_length_mla"})
        (void)find_int(suffix, 1, INT32_MAX);
    const auto num_experts = find_int("expert_count", 0, kMaxExperts);
    (void)find_int("expert_used_count", 0, num_experts.value_or(kMaxExperts));
    check_scalar_or_per_layer("attention.head_count", 1, num_blocks, num_nextn);
    check_scalar_or_per_layer("attention.head_count_kv", 1, num_blocks, num_nextn);
    check_scalar_or_per_layer("feed_forward_length", 0, num_blocks, num_nextn);
    check_head_groups();
}

/// A scalar for all layers, or one item a layer: with or without the layers that predict ahead.
void Checker::check_scalar_or_per_layer(const char* suffix, std::int64_t min_scalar,
                                        std::optional<std::int64_t> num_blocks,
                                        std::int64_t num_nextn) const {
    const KeyValue* kv = find_arch(suffix);
    if (kv == nullptr) return;
    if (!kv->is_array()) {
        (void)int_in_range(*kv, 0, min_scalar, INT32_MAX);
        return;
    }
    if (num_blocks) {
        const auto all = static_cast<std::uint64_t>(*num_blocks);
        const auto trunk =
            static_cast<std::uint64_t>(std::max<std::int64_t>(*num_blocks - num_nextn, 0));
        if (kv->count != all && kv->count != trunk)
            fail(*kv, "wrong array length: expected one item for each of " + num(all) +
                          " layers, found " + num(kv->count));
    }
    for (std::uint64_t i = 0; i < kv->count; ++i) (void)int_in_range(*kv, i, 0, INT32_MAX);
}

void Checker::check_head_groups() const {
    const KeyValue* heads = find_arch("attention.head_count");
    const KeyValue* kv_heads = find_arch("attention.head_count_kv");
    if (heads == nullptr || kv_heads == nullptr) return;
    if (heads->is_array() && kv_heads->is_array() && heads->count != kv_heads->count) return;
    const std::uint64_t n =
        std::max(heads->is_array() ? heads->count : 1, kv_heads->is_array() ? kv_heads->count : 1);
    for (std::uint64_t i = 0; i < n; ++i) {
        if ((heads->is_array() && i >= heads->count) ||
            (kv_heads->is_array() && i >= kv_heads->count))
            return;
        const std::int64_t q = *int_item(*heads, heads->is_array() ? i : 0);
        const std::int64_t k = *int_item(*kv_heads, kv_heads->is_array() ? i : 0);
        if (k != 0 && q % k != 0)
            fail(*kv_heads, "bad value: expected a divisor of the " + std::to_string(q) +
                                " heads, found " + std::to_string(k));
    }
}

// ---- tokenizer.ggml.* -------------------------------------------------------------------

void Checker::check_tokenizer() const {
    check_charsmap();
    check_merges();
    const KeyValue* tokens = header_.find("tokenizer.ggml.tokens");
    if (tokens == nullptr) return;
    if (!tokens->is_array() || tokens->item_type != ValueType::string)
        fail_type(*tokens, "an array of string");
    check_token_array("tokenizer.ggml.scores", true, tokens->count);
    check_token_array("tokenizer.ggml.token_type", false, tokens->count);

    const auto last = static_cast<std::int64_t>(tokens->count) - 1;
    constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
    for (const KeyValue& kv : header_.metadata) {
        if (!kv.key.starts_with(kPrefix) || !kv.key.ends_with(kSuffix)) continue;
        if (kv.is_array()) fail_type(kv, "an integer");
        if (!is_integer(kv.type)) fail_type(kv, "an integer");
        const auto id = int_item(kv);
        if (!id || *id < 0 || *id > last)
            fail(kv, "token id outside the vocabulary: expected 0 to " + std::to_string(last) +
                         ", found " + (id ? std::to_string(*id) : "2^63 or more"));
    }
    if (const KeyValue* kv = header_.find("tokenizer.ggml.suppress_tokens")) {
        if (!kv->is_array()) fail_type(*kv, "an array of integers");
        for (std::uint64_t i = 0; i < kv->count; ++i) (void)int_in_range(*kv, i, 0, last);
    }
}

/// Scores (f32; some writers used i32) and token types (integers of any width), one a token.
void Checker::check_token_array(const char* key, bool floats, std::uint64_t num_tokens) const {
    const KeyValue* kv = header_.find(key);
    if (kv == nullptr) return;
    const bool fits = floats ? kv->item_type == ValueType::f32 || kv->item_type == ValueType::i32
                             : is_integer(kv->item_type);
    if (!kv->is_array() || !fits)
        fail_type(*kv, floats ? "an array of f32" : "an array of integers");
    if (kv->count < num_tokens)
        fail(*kv, "wrong array length: expected one item for each of " + num(num_tokens) +
                      " tokens, found " + num(kv->count));
}

void Checker::check_merges() const {
    const KeyValue* kv = header_.find("tokenizer.ggml.merges");
    if (kv == nullptr) return;
    if (!kv->is_array() || kv->item_type != ValueType::string) fail_type(*kv, "an array of string");
    StringItems items{*kv};
    for (std::uint64_t i = 0; i < kv->count; ++i) {
        const std::string_view merge = items.next();
        const auto space = merge.find(' ', 1);
        if (space == std::string_view::npos || space + 1 == merge.size())
            fail(*kv, "bad merge: expected two parts with a space between, found " + quoted(merge) +
                          " as item " + num(i));
    }
}

/// Starts with a little-endian u32: the bytes of the trie that follow it.
void Checker::check_charsmap() const {
    const KeyValue* kv = header_.find("tokenizer.ggml.precompiled_charsmap");
    if (kv == nullptr) return;
    if (!kv->is_array() || (kv->item_type != ValueType::u8 && kv->item_type != ValueType::i8))
        fail_type(*kv, "an array of u8");
    if (kv->count == 0) return;
    std::uint32_t trie_bytes = 0;
    if (kv->count >= sizeof trie_bytes)
        std::memcpy(&trie_bytes, kv->payload.data(), sizeof trie_bytes);
    if (kv->count < sizeof trie_bytes || trie_bytes > kv->count - sizeof trie_bytes)
        fail(*kv, "character map shorter than its own size field: expected " +
                      num(std::uint64_t{trie_bytes} + sizeof trie_bytes) + " bytes, found " +
                      num(kv->count));
}

}  // namespace

void check_conventions(const Header& header, std::string_view name) {
    Checker{header, name}.check();
}

}  // namespace gguf
