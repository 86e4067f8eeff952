#include "preset.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace synth {
namespace {

// Sizes as in architectures.md section 16. Those of models that exist keep their real vocabulary
// size, so that the weight of the embedding and the head is right.
// clang-format off
constexpr Preset kPresets[] = {
    {"llama-1.1b", "llama",
     "block_count=22 context_length=2048 embedding_length=2048 feed_forward_length=5632 attention.head_count=32 "
     "attention.head_count_kv=4 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=64 vocab_size=32000",
     "llama-bpe", "output.weight", "q4_k_m", "TinyLlama 1.1B"},
    {"llama-8b", "llama",
     "block_count=32 context_length=131072 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 "
     "attention.head_count_kv=8 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=128 rope.freq_base=500000.0 "
     "vocab_size=128256",
     "llama-bpe", "output.weight rope_freqs.weight", "q4_k_m", "Llama 3.1 8B"},
    {"mixtral-8x7b", "llama",
     "block_count=32 context_length=32768 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 "
     "attention.head_count_kv=8 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=128 rope.freq_base=1000000.0 "
     "expert_count=8 expert_used_count=2 vocab_size=32000",
     "llama-bpe", "output.weight", "q4_k_m", "Mixtral 8x7B"},
    {"qwen2-0.5b", "qwen2",
     "block_count=24 context_length=32768 embedding_length=896 feed_forward_length=4864 attention.head_count=14 "
     "attention.head_count_kv=2 attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000.0 vocab_size=151936",
     "qwen2", "", "q4_k_m", "Qwen2.5 0.5B, tied"},
    {"qwen3-0.6b", "qwen3",
     "block_count=28 context_length=40960 embedding_length=1024 feed_forward_length=3072 attention.head_count=16 "
     "attention.head_count_kv=8 attention.key_length=128 attention.value_length=128 "
     "attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000.0 vocab_size=151936",
     "qwen2", "", "q8_0", "Qwen3 0.6B, tied"},
    {"qwen3moe-30b", "qwen3moe",
     "block_count=48 context_length=40960 embedding_length=2048 feed_forward_length=6144 attention.head_count=32 "
     "attention.head_count_kv=4 attention.key_length=128 attention.value_length=128 "
     "attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000.0 expert_count=128 expert_used_count=8 "
     "expert_feed_forward_length=768 vocab_size=151936",
     "qwen2", "output.weight", "q4_k_m", "Qwen3 30B-A3B"},
    {"glm4-9b", "glm4",
     "block_count=40 context_length=32768 embedding_length=4096 feed_forward_length=13696 attention.head_count=32 "
     "attention.head_count_kv=2 attention.key_length=128 attention.value_length=128 rope.dimension_count=64 "
     "attention.layer_norm_rms_epsilon=1e-5 rope.freq_base=10000.0 vocab_size=151552",
     "glm4", "output.weight blk.*.attn_?.bias blk.*.ffn_up.weight", "q4_k_m", "GLM-4-9B-0414: gate and up fused"},
    {"glm4moe-106b", "glm4moe",
     "block_count=47 nextn_predict_layers=1 context_length=131072 embedding_length=4096 feed_forward_length=10944 "
     "attention.head_count=96 attention.head_count_kv=8 attention.key_length=128 attention.value_length=128 "
     "rope.dimension_count=64 attention.layer_norm_rms_epsilon=1e-5 rope.freq_base=1000000.0 expert_count=128 "
     "expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=1408 leading_dense_block_count=1 "
     "expert_weights_norm=true expert_weights_scale=1.0 expert_gating_func=2 vocab_size=151552",
     "glm4", "output.weight blk.*.attn_?.bias", "q4_k_m", "GLM-4.5-Air"},
    {"gpt-oss-20b", "gpt-oss",
     "block_count=24 context_length=131072 embedding_length=2880 feed_forward_length=2880 attention.head_count=64 "
     "attention.head_count_kv=8 attention.key_length=64 attention.value_length=64 attention.sliding_window=128 "
     "attention.layer_norm_rms_epsilon=1e-5 rope.freq_base=150000.0 rope.scaling.type=yarn rope.scaling.factor=32.0 "
     "rope.scaling.original_context_length=4096 expert_count=32 expert_used_count=4 expert_feed_forward_length=2880 "
     "vocab_size=201088",
     "gpt-4o", "output.weight", "mxfp4_moe", "gpt-oss-20b"},
    {"gemma3-1b", "gemma3",
     "block_count=26 context_length=32768 embedding_length=1152 feed_forward_length=6912 attention.head_count=4 "
     "attention.head_count_kv=1 attention.key_length=256 attention.value_length=256 attention.sliding_window=512 "
     "attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=1000000.0 vocab_size=262144",
     "llama-bpe", "", "q8_0", "Gemma 3 1B, tied"},
    {"deepseek-v2-lite", "deepseek2",
     "block_count=27 context_length=163840 embedding_length=2048 feed_forward_length=10944 attention.head_count=16 "
     "attention.head_count_kv=1 attention.kv_lora_rank=512 attention.key_length=576 attention.value_length=512 "
     "attention.key_length_mla=192 attention.value_length_mla=128 rope.dimension_count=64 "
     "attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=10000.0 rope.scaling.type=yarn rope.scaling.factor=40.0 "
     "rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.0707 expert_count=64 "
     "expert_used_count=6 expert_shared_count=2 expert_feed_forward_length=1408 leading_dense_block_count=1 "
     "expert_weights_scale=1.0 expert_gating_func=1 vocab_size=102400",
     "deepseek-llm", "output.weight", "q4_k_m", "DeepSeek-V2-Lite: MLA without q_lora, 64 experts"},
    {"deepseek-v3", "deepseek2",
     "block_count=61 context_length=163840 embedding_length=7168 feed_forward_length=18432 attention.head_count=128 "
     "attention.head_count_kv=1 attention.q_lora_rank=1536 attention.kv_lora_rank=512 attention.key_length=576 "
     "attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 rope.dimension_count=64 "
     "attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=10000.0 rope.scaling.type=yarn rope.scaling.factor=40.0 "
     "rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.1 expert_count=256 "
     "expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048 expert_group_count=8 "
     "expert_group_used_count=4 leading_dense_block_count=3 expert_weights_norm=true expert_weights_scale=2.5 "
     "expert_gating_func=2 vocab_size=129280",
     "deepseek-v3", "output.weight blk.*.exp_probs_b.bias", "q4_k_m", "DeepSeek-V3, R1: expert groups, YaRN"},
    {"deepseek-v3.2", "deepseek32",
     "block_count=62 nextn_predict_layers=1 context_length=163840 embedding_length=7168 feed_forward_length=18432 "
     "attention.head_count=128 attention.head_count_kv=1 attention.q_lora_rank=1536 attention.kv_lora_rank=512 "
     "attention.key_length=576 attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
     "rope.dimension_count=64 attention.layer_norm_rms_epsilon=1e-6 rope.freq_base=10000.0 rope.scaling.type=yarn "
     "rope.scaling.factor=40.0 rope.scaling.original_context_length=4096 rope.scaling.yarn_log_multiplier=0.1 "
     "expert_count=256 expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048 expert_group_count=8 "
     "expert_group_used_count=4 leading_dense_block_count=3 expert_weights_norm=true expert_weights_scale=2.5 "
     "expert_gating_func=2 attention.indexer.head_count=64 attention.indexer.key_length=128 "
     "attention.indexer.top_k=2048 vocab_size=129280",
     "deepseek-v3", "output.weight blk.*.exp_probs_b.bias", "q4_k_m", "DeepSeek-V3.2: sparse attention"},
    {"glm-dsa-0.25b", "glm-dsa",
     "block_count=8 nextn_predict_layers=1 context_length=32768 embedding_length=1024 feed_forward_length=3072 "
     "attention.head_count=8 attention.head_count_kv=1 attention.q_lora_rank=512 attention.kv_lora_rank=256 "
     "attention.key_length=320 attention.value_length=256 attention.key_length_mla=192 attention.value_length_mla=128 "
     "rope.dimension_count=64 attention.layer_norm_rms_epsilon=1e-5 rope.freq_base=1000000.0 expert_count=16 "
     "expert_used_count=4 expert_shared_count=1 expert_feed_forward_length=512 expert_group_count=1 "
     "expert_group_used_count=1 leading_dense_block_count=1 expert_weights_norm=true expert_weights_scale=2.5 "
     "expert_gating_func=2 attention.indexer.head_count=16 attention.indexer.key_length=128 "
     "attention.indexer.top_k=256 vocab_size=16384",
     "glm4", "output.weight", "q4_k_m", "GLM-5's shape at 0.25B: 16 experts, index_topk 256"},
    {"glm-5", "glm-dsa",
     "block_count=79 nextn_predict_layers=1 context_length=202752 embedding_length=6144 feed_forward_length=12288 "
     "attention.head_count=64 attention.head_count_kv=1 attention.q_lora_rank=2048 attention.kv_lora_rank=512 "
     "attention.key_length=576 attention.value_length=512 attention.key_length_mla=256 attention.value_length_mla=256 "
     "rope.dimension_count=64 attention.layer_norm_rms_epsilon=1e-5 rope.freq_base=1000000.0 expert_count=256 "
     "expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048 expert_group_count=1 "
     "expert_group_used_count=1 leading_dense_block_count=3 expert_weights_norm=true expert_weights_scale=2.5 "
     "expert_gating_func=2 attention.indexer.head_count=32 attention.indexer.key_length=128 "
     "attention.indexer.top_k=2048 vocab_size=154880",
     "glm4", "output.weight", "iq4_xs", "GLM-5 whole: 1809 tensors, 402 GB in IQ4_XS; --layers cuts it"},
};
// clang-format on

base::MetaValue parse_scalar(std::string_view text) {
    if (text == "true") return true;
    if (text == "false") return false;
    const char* const end = text.data() + text.size();
    std::int64_t integer = 0;
    if (const auto r = std::from_chars(text.data(), end, integer);
        r.ec == std::errc{} && r.ptr == end)
        return integer;
    double real = 0;
    if (const auto r = std::from_chars(text.data(), end, real); r.ec == std::errc{} && r.ptr == end)
        return real;
    return std::string{text};
}

template <class T>
std::vector<T> array_of(const std::vector<base::MetaValue>& items, std::string_view word) {
    std::vector<T> out;
    for (const base::MetaValue& item : items) {
        if (!std::holds_alternative<T>(item))
            throw std::invalid_argument{std::string{word} +
                                        ": the items of an array have one type"};
        out.push_back(std::get<T>(item));
    }
    return out;
}

base::MetaValue parse_array(std::string_view text, std::string_view word) {
    std::vector<base::MetaValue> items;
    while (!text.empty()) {
        const auto comma = std::min(text.find(','), text.size());
        items.push_back(parse_scalar(text.substr(0, comma)));
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
    if (items.empty()) throw std::invalid_argument{std::string{word} + ": an array needs an item"};
    if (std::holds_alternative<bool>(items.front())) return array_of<bool>(items, word);
    if (std::holds_alternative<double>(items.front())) return array_of<double>(items, word);
    if (std::holds_alternative<std::string>(items.front()))
        return array_of<std::string>(items, word);
    return array_of<std::int64_t>(items, word);
}

}  // namespace

std::span<const Preset> presets() {
    return kPresets;
}

const Preset* find_preset(std::string_view name) {
    for (const Preset& preset : kPresets)
        if (preset.name == name) return &preset;
    return nullptr;
}

std::vector<std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
        const auto end = std::min(text.find(' ', at), text.size());
        words.emplace_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

void Keys::set(std::string_view assignments) {
    for (const std::string& word : split_words(assignments)) {
        const auto equals = word.find('=');
        if (equals == 0 || equals == std::string::npos || equals + 1 == word.size())
            throw std::invalid_argument{"\"" + word + "\": expected KEY=VALUE"};
        const std::string_view value = std::string_view{word}.substr(equals + 1);
        const bool is_array = value.front() == '[' && value.back() == ']';
        set(word.substr(0, equals),
            is_array ? parse_array(value.substr(1, value.size() - 2), word) : parse_scalar(value));
    }
}

void Keys::set(std::string key, base::MetaValue value) {
    for (auto& [known, old] : keys_) {
        if (known != key) continue;
        old = std::move(value);
        return;
    }
    keys_.emplace_back(std::move(key), std::move(value));
}

const base::MetaValue* Keys::find(std::string_view key) const {
    for (const auto& [known, value] : keys_)
        if (known == key) return &value;
    return nullptr;
}

std::int64_t Keys::get_int(std::string_view key) const {
    const base::MetaValue* value = find(key);
    if (value == nullptr || !std::holds_alternative<std::int64_t>(*value))
        throw std::invalid_argument{"key " + std::string{key} + ": an integer is needed"};
    return std::get<std::int64_t>(*value);
}

void make_tiny(Keys& keys) {
    const auto replace = [&keys](std::string_view key, std::int64_t value) {
        if (keys.find(key) != nullptr) keys.set(std::string{key}, value);
    };
    const bool is_mla = keys.find("attention.kv_lora_rank") != nullptr;
    const auto int_or = [&keys](std::string_view key, std::int64_t fallback) {
        return keys.find(key) != nullptr ? keys.get_int(key) : fallback;
    };
    const bool is_partial = int_or("rope.dimension_count", 0) < int_or("attention.key_length", 0);
    replace("leading_dense_block_count", 1);
    set_layers(keys, 3);
    replace("context_length", 1024);
    replace("embedding_length", 256);
    replace("feed_forward_length", 512);
    replace("attention.head_count", 4);
    if (!is_mla) replace("attention.head_count_kv", 2);
    replace("attention.q_lora_rank", 256);
    replace("attention.kv_lora_rank", 256);
    replace("attention.key_length", is_mla ? 288 : 64);
    replace("attention.value_length", is_mla ? 256 : 64);
    replace("attention.key_length_mla", 96);
    replace("attention.value_length_mla", 64);
    replace("rope.dimension_count", is_mla || is_partial ? 32 : 64);
    replace("attention.sliding_window", 32);
    replace("expert_count", 8);
    replace("expert_used_count", 2);
    replace("expert_feed_forward_length", 256);
    if (int_or("expert_group_count", 1) > 1) {
        replace("expert_group_count", 4);
        replace("expert_group_used_count", 2);
    }
    replace("attention.indexer.head_count", 4);
    replace("attention.indexer.key_length", 64);
    replace("attention.indexer.top_k", 64);
    replace("rope.scaling.original_context_length", 256);
    replace("vocab_size", 1024);
}

void set_layers(Keys& keys, std::int64_t num_layers) {
    const std::int64_t nextn =
        keys.find("nextn_predict_layers") != nullptr ? keys.get_int("nextn_predict_layers") : 0;
    keys.set("block_count", num_layers + nextn);
    if (keys.find("leading_dense_block_count") != nullptr)
        keys.set("leading_dense_block_count",
                 std::min(keys.get_int("leading_dense_block_count"), num_layers));
}

}  // namespace synth
