#pragma once

// Small models as files: keys and tensors that a test changes before it writes them, opened with the
// real loader.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "cxx/plugin.hpp"
#include "daemon/model/audit.hpp"
#include "daemon/model/model_file.hpp"
#include "tests/support/gguf_writer.hpp"

namespace model_test {

inline const assay_loader* gguf_loader() {
    static const assay_loader* const table = [] {
        void* image = ::dlopen(ASSAY_BUILD_DIR "/plugins/loader/gguf.so", RTLD_NOW | RTLD_LOCAL);
        if (image == nullptr) throw std::runtime_error{::dlerror()};
        const auto* module = static_cast<const assay_module*>(::dlsym(image, "assay_module_entry"));
        return static_cast<const assay_loader*>(module->query(ASSAY_KIND_LOADER));
    }();
    return table;
}

/// A file that is deleted with this object.
class OpenedFile {
public:
    explicit OpenedFile(const test_support::GgufWriter& writer) : path_{next_path()} {
        writer.write(path_);
        file = std::make_unique<model::ModelFile>(plugin::Source{"gguf", nullptr, nullptr}, gguf_loader(), path_);
    }
    ~OpenedFile() {
        file.reset();
        std::filesystem::remove(path_);
    }
    OpenedFile(const OpenedFile&) = delete;
    OpenedFile& operator=(const OpenedFile&) = delete;

    std::unique_ptr<model::ModelFile> file;

private:
    static std::string next_path() {
        static int count = 0;
        return (std::filesystem::temp_directory_path() /
                ("model_test." + std::to_string(::getpid()) + "." + std::to_string(++count) + ".gguf"))
            .string();
    }
    std::string path_;
};

/// What a file will hold.
class ModelSpec {
public:
    explicit ModelSpec(std::string arch) : arch_{std::move(arch)} {}

    void set(const std::string& suffix, std::uint32_t v) { put<std::uint32_t>(suffix, v); }
    void set_i64(const std::string& suffix, std::int64_t v) { put<std::int64_t>(suffix, v); }
    void set_float(const std::string& suffix, float v) { put<float>(suffix, v); }
    void set_bool(const std::string& suffix, bool v) { put<bool>(suffix, v); }
    void set_string(const std::string& suffix, std::string v) {
        keys_[suffix] = {v, [v](auto& w, const std::string& key) { w.string(key, v); }};
    }
    /// Of integers or bools.
    template <class T>
    void set_array(const std::string& suffix, std::vector<T> v) {
        using Item = std::conditional_t<std::is_same_v<T, bool>, bool, std::int64_t>;
        keys_[suffix] = {std::vector<Item>(v.begin(), v.end()),
                         [v](auto& w, const std::string& key) { w.array(key, v); }};
    }
    void erase(const std::string& suffix) { keys_.erase(suffix); }

    /// Sizes as the file stores them: contiguous dimension first.
    std::map<std::string, std::vector<std::uint64_t>> tensors;
    /// The same as a loader gives them: outermost first.
    [[nodiscard]] std::map<std::string, std::vector<std::int64_t>, std::less<>> shapes() const {
        std::map<std::string, std::vector<std::int64_t>, std::less<>> out;
        for (const auto& [name, ne] : tensors) out[name].assign(ne.rbegin(), ne.rend());
        return out;
    }
    void rename(const std::string& from, const std::string& to) {
        auto node = tensors.extract(from);
        node.key() = to;
        tensors.insert(std::move(node));
    }
    /// What general.architecture says; the keys keep their prefix.
    std::string declared_arch;

    /// The keys as any loader would give them, unchecked: a loader of another format may know less of
    /// them than that for GGUF.
    [[nodiscard]] base::Metadata metadata() const {
        base::Metadata out;
        out.set("general.architecture", declared_arch.empty() ? arch_ : declared_arch);
        for (const auto& [suffix, entry] : keys_) out.set(arch_ + "." + suffix, entry.value);
        return out;
    }
    [[nodiscard]] std::unique_ptr<OpenedFile> write() const {
        test_support::GgufWriter w;
        w.string("general.architecture", declared_arch.empty() ? arch_ : declared_arch);
        for (const auto& [suffix, entry] : keys_) entry.put(w, arch_ + "." + suffix);
        for (const auto& [name, ne] : tensors) {
            std::uint64_t count = 1;
            for (const auto n : ne) count *= n;
            w.tensor({.name = name, .ne = ne, .type = 0, .data = std::string(count * 4, '\0')});
        }
        return std::make_unique<OpenedFile>(w);
    }

private:
    template <class T>
    void put(const std::string& suffix, T v) {
        using Held = std::conditional_t<std::is_same_v<T, bool>, bool,
                                        std::conditional_t<std::is_integral_v<T>, std::int64_t, double>>;
        keys_[suffix] = {static_cast<Held>(v), [v](auto& w, const std::string& key) { w.value(key, v); }};
    }

    std::string arch_;
    struct Entry {
        base::MetaValue value;
        std::function<void(test_support::GgufWriter&, const std::string&)> put;
    };
    std::map<std::string, Entry> keys_;
};

/// Two layers, 4 query heads over 2 key heads, output head of its own.
inline ModelSpec llama() {
    ModelSpec m{"llama"};
    m.set("block_count", 2);
    m.set("context_length", 128);
    m.set("embedding_length", 16);
    m.set("feed_forward_length", 24);
    m.set("attention.head_count", 4);
    m.set("attention.head_count_kv", 2);
    m.set_float("attention.layer_norm_rms_epsilon", 1e-5F);
    m.set("vocab_size", 11);
    m.tensors = {{"token_embd.weight", {16, 11}}, {"output_norm.weight", {16}}, {"output.weight", {16, 11}}};
    for (const char* l : {"blk.0.", "blk.1."}) {
        const auto add = [&](const char* name, std::vector<std::uint64_t> ne) { m.tensors[std::string{l} + name] = ne; };
        add("attn_norm.weight", {16});
        add("attn_q.weight", {16, 16});
        add("attn_k.weight", {16, 8});
        add("attn_v.weight", {16, 8});
        add("attn_output.weight", {16, 16});
        add("ffn_norm.weight", {16});
        add("ffn_gate.weight", {16, 24});
        add("ffn_up.weight", {16, 24});
        add("ffn_down.weight", {24, 16});
    }
    return m;
}

/// Three trunk layers (dense, MoE, MoE) of multi-head latent attention and a NextN block.
inline ModelSpec mla(const std::string& arch) {
    ModelSpec m{arch};
    m.set("block_count", 4);
    m.set("nextn_predict_layers", 1);
    m.set("context_length", 128);
    m.set("embedding_length", 16);
    m.set("feed_forward_length", 24);
    m.set("attention.head_count", 2);
    m.set("attention.head_count_kv", 1);
    m.set("attention.q_lora_rank", 12);
    m.set("attention.kv_lora_rank", 8);
    m.set("attention.key_length", 10);
    m.set("attention.value_length", 8);
    m.set("attention.key_length_mla", 6);
    m.set("attention.value_length_mla", 5);
    m.set("rope.dimension_count", 2);
    m.set_float("attention.layer_norm_rms_epsilon", 1e-5F);
    m.set("vocab_size", 11);
    m.set("expert_count", 4);
    m.set("expert_used_count", 2);
    m.set("expert_shared_count", 1);
    m.set("expert_feed_forward_length", 7);
    m.set("expert_group_count", 1);
    m.set("expert_group_used_count", 1);
    m.set("expert_gating_func", 2);
    m.set("leading_dense_block_count", 1);
    m.tensors = {{"token_embd.weight", {16, 11}}, {"output_norm.weight", {16}}, {"output.weight", {16, 11}}};
    for (int l = 0; l < 4; ++l) {
        const auto add = [&](const char* name, std::vector<std::uint64_t> ne) {
            m.tensors["blk." + std::to_string(l) + "." + name] = ne;
        };
        add("attn_norm.weight", {16});
        add("attn_q_a.weight", {16, 12});
        add("attn_q_a_norm.weight", {12});
        add("attn_q_b.weight", {12, 12});          // 2 heads of 6
        add("attn_kv_a_mqa.weight", {16, 10});     // 8 + 2
        add("attn_kv_a_norm.weight", {8});
        add("attn_k_b.weight", {4, 8, 2});         // nope 4
        add("attn_v_b.weight", {8, 5, 2});
        add("attn_output.weight", {10, 16});
        add("ffn_norm.weight", {16});
        if (l == 0) {
            add("ffn_gate.weight", {16, 24});
            add("ffn_up.weight", {16, 24});
            add("ffn_down.weight", {24, 16});
            continue;
        }
        add("ffn_gate_inp.weight", {16, 4});
        add("exp_probs_b.bias", {4});
        add("ffn_gate_exps.weight", {16, 7, 4});
        add("ffn_up_exps.weight", {16, 7, 4});
        add("ffn_down_exps.weight", {7, 16, 4});
        add("ffn_gate_shexp.weight", {16, 7});
        add("ffn_up_shexp.weight", {16, 7});
        add("ffn_down_shexp.weight", {7, 16});
    }
    m.tensors["blk.3.nextn.eh_proj.weight"] = {32, 16};
    m.tensors["blk.3.nextn.enorm.weight"] = {16};
    m.tensors["blk.3.nextn.hnorm.weight"] = {16};
    return m;
}

inline ModelSpec deepseek2() { return mla("deepseek2"); }

/// The same with an indexer in `layers`.
inline ModelSpec with_indexer(ModelSpec m, const std::vector<int>& layers) {
    m.set("attention.indexer.head_count", 3);
    m.set("attention.indexer.key_length", 6);
    m.set("attention.indexer.top_k", 16);
    for (const int l : layers) {
        const std::string indexer = "blk." + std::to_string(l) + ".indexer.";
        m.tensors[indexer + "attn_q_b.weight"] = {12, 18};  // 3 heads of 6
        m.tensors[indexer + "attn_k.weight"] = {16, 6};
        m.tensors[indexer + "k_norm.weight"] = {6};
        m.tensors[indexer + "k_norm.bias"] = {6};
        m.tensors[indexer + "proj.weight"] = {16, 3};
    }
    return m;
}

inline ModelSpec deepseek32() { return with_indexer(mla("deepseek32"), {0, 1, 2, 3}); }

/// The last trunk layer shares the choice of the one before.
inline ModelSpec glm_dsa() {
    ModelSpec m = with_indexer(mla("glm-dsa"), {0, 1, 3});
    m.set_array<bool>("attention.indexer.types", {true, true, false});
    return m;
}

/// As older converters wrote it: attn_kv_b, and sizes of a head where the cache's are now.
inline void make_legacy(ModelSpec& m) {
    m.set("attention.head_count_kv", 2);
    m.set("attention.key_length", 6);
    m.set("attention.value_length", 5);
    m.erase("attention.key_length_mla");
    m.erase("attention.value_length_mla");
    for (int l = 0; l < 4; ++l) {
        const std::string block = "blk." + std::to_string(l) + ".";
        m.tensors.erase(block + "attn_k_b.weight");
        m.tensors.erase(block + "attn_v_b.weight");
        m.tensors[block + "attn_kv_b.weight"] = {8, 18};  // 2 heads of 4 key and 5 value rows
    }
}

}  // namespace model_test
