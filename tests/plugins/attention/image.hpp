#pragma once

// Loads an attention image through its module symbol and holds one instance of it.

#include "cxx/plugin.hpp"
#include "tests/support/build_dir.hpp"

#ifdef ASSAY_TEST_CUDA
#include "cuda/space.hpp"
#endif

#include <algorithm>
#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace attention_test {

/// An image and the configuration a test runs it with.
struct Backend {
    const char* image;  // file name without .so
    const char* tier;   // value of the option "tier"; null: no option
    assay_dtype kv_dtype;

    [[nodiscard]] bool is_cuda() const { return std::string_view{image}.starts_with("cuda"); }
    /// Whether queries and weights are narrowed to the cache's dtype.
    [[nodiscard]] bool is_tensor_core() const {
        return is_cuda() && tier != nullptr && std::string_view{tier} != "plain";
    }
    [[nodiscard]] std::string name() const {
        std::string text = std::string{image} + (tier != nullptr ? std::string{"_"} + tier : "") +
                           "_" + sdk::dtype_name(kv_dtype);
        std::replace(text.begin(), text.end(), '-', '_');
        return text;
    }
};

/// The images stay mapped for the life of the process, as they do in the daemon.
inline const assay_module& open_module(const std::string& image) {
    const std::string path = support::build_dir() + "/plugins/attention/" + image + ".so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error{dlerror()};
    const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
    if (module == nullptr || module->magic != ASSAY_MAGIC)
        throw std::runtime_error{path + ": no module entry"};
    assay_error err = sdk::make_error();
    if (module->open(nullptr, &err) != ASSAY_OK) throw std::runtime_error{err.text};
    return *module;
}

inline const assay_attention& open_image(const std::string& image) {
    const void* table = open_module(image).query(ASSAY_KIND_ATTENTION);
    if (table == nullptr) throw std::runtime_error{image + ": no attention/1"};
    return *static_cast<const assay_attention*>(table);
}

/// A configuration with everything it points to.
struct Config {
    assay_device_ref device{};
    assay_option option{};
    assay_attn_config config{};

    Config(const Backend& backend, std::uint32_t page_tokens, std::int32_t num_units = 3) {
        device.size = sizeof device;
        device.kind = "cpu";
        device.num_units = num_units;
#ifdef ASSAY_TEST_CUDA
        if (backend.is_cuda()) device = cuda_device();
#endif
        config.size = sizeof config;
        config.device = &device;
        config.io_dtype = ASSAY_F32;
        config.kv_dtype = backend.kv_dtype;
        config.page_tokens = page_tokens;
        if (backend.tier != nullptr) {
            option = {"tier", backend.tier};
            config.options = &option;
            config.num_options = 1;
        }
    }
    Config(const Config&) = delete;
    Config& operator=(const Config&) = delete;
};

inline assay_attn_layer gqa_layer(std::int32_t num_q_heads, std::int32_t num_kv_heads,
                                  std::int32_t head_dim, std::int32_t v_head_dim, float scale) {
    assay_attn_layer layer{};
    layer.size = sizeof layer;
    layer.attn_class = ASSAY_ATTN_GQA;
    layer.num_q_heads = num_q_heads;
    layer.num_kv_heads = num_kv_heads;
    layer.head_dim = head_dim;
    layer.v_head_dim = v_head_dim;
    layer.softmax_scale = scale;
    return layer;
}

inline assay_attn_layer mla_layer(std::int32_t num_q_heads, std::int32_t kv_lora_rank,
                                  std::int32_t qk_rope_head_dim, float scale) {
    assay_attn_layer layer{};
    layer.size = sizeof layer;
    layer.attn_class = ASSAY_ATTN_MLA;
    layer.num_q_heads = num_q_heads;
    layer.num_kv_heads = 1;
    layer.kv_lora_rank = kv_lora_rank;
    layer.qk_rope_head_dim = qk_rope_head_dim;
    layer.qk_nope_head_dim = 32;
    layer.v_head_dim = 32;
    layer.softmax_scale = scale;
    return layer;
}

inline assay_attn_layer dsa_layer(assay_attn_layer mla, std::int32_t index_n_heads,
                                  std::int32_t index_head_dim, std::int32_t index_topk) {
    mla.attn_class = ASSAY_ATTN_MLA_DSA;
    mla.index_role = ASSAY_INDEX_FULL;
    mla.index_n_heads = index_n_heads;
    mla.index_head_dim = index_head_dim;
    mla.index_topk = index_topk;
    return mla;
}

/// Why an image does not serve a layer here, in its own words; empty when it does.
inline std::string refusal_of(const Backend& backend, const assay_attn_layer& layer,
                              std::uint32_t page_tokens = 32) {
    const Config config{backend, page_tokens};
    assay_error err = sdk::make_error();
    const assay_status status =
        open_image(backend.image).check(&config.config, &layer, ASSAY_MIXED, &err);
    return status == ASSAY_OK ? "" : err.text;
}

/// One layer on one image. Throws when the image refuses.
class Instance {
public:
    Instance(const Backend& backend, const assay_attn_layer& layer, std::uint32_t page_tokens,
             std::int32_t num_units = 3)
        : table_{open_image(backend.image)}, config_{backend, page_tokens, num_units} {
        assay_error err = sdk::make_error();
        layout_.size = sizeof layout_;
        const assay_attn_layer* layers[] = {&layer};
        char tier[32];
        if (table_.kv_layout(&config_.config, &layer, &layout_, &err) != ASSAY_OK ||
            table_.create(nullptr, &config_.config, layers, 1, &self_, tier, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        tier_ = tier;
    }
    ~Instance() { table_.destroy(self_); }
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    [[nodiscard]] const assay_attention& table() const noexcept { return table_; }
    [[nodiscard]] const assay_kv_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] const std::string& tier() const noexcept { return tier_; }
    [[nodiscard]] void* self() const noexcept { return self_; }

private:
    const assay_attention& table_;
    Config config_;
    assay_kv_layout layout_{};
    std::string tier_;
    void* self_ = nullptr;
};

}  // namespace attention_test
