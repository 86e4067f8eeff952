#pragma once

#include "abi/plugin.h"
#include "cxx/plugin.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace loader_test {

/// The loader tables of the built image, opened the way a host does it. Stays mapped.
inline const assay_module& gguf_module() {
    static const assay_module* module = [] {
        void* image = ::dlopen(ASSAY_BUILD_DIR "/plugins/loader/gguf.so", RTLD_NOW | RTLD_LOCAL);
        if (image == nullptr) throw std::runtime_error{::dlerror()};
        return static_cast<const assay_module*>(::dlsym(image, "assay_module_entry"));
    }();
    return *module;
}

inline const assay_loader& gguf_loader() {
    return *static_cast<const assay_loader*>(gguf_module().query(ASSAY_KIND_LOADER));
}

/// An opened model, or the refusal.
class OpenedModel {
public:
    explicit OpenedModel(const std::string& path, const assay_host* host = nullptr) {
        assay_error err = sdk::make_error();
        assay_load_config config{};
        config.size = sizeof config;
        status_ = gguf_loader().open(host, &config, path.c_str(), &handle_, &err);
        if (status_ != ASSAY_OK) words_ = err.text;
    }
    ~OpenedModel() {
        if (handle_ != nullptr) gguf_loader().close(handle_);
    }
    OpenedModel(const OpenedModel&) = delete;
    OpenedModel& operator=(const OpenedModel&) = delete;

    [[nodiscard]] bool ok() const { return status_ == ASSAY_OK; }
    [[nodiscard]] assay_status status() const { return status_; }
    [[nodiscard]] const std::string& words() const { return words_; }
    [[nodiscard]] void* handle() const { return handle_; }

    [[nodiscard]] std::uint64_t num_tensors() const { return gguf_loader().tensor_count(handle_); }
    [[nodiscard]] assay_tensor_info tensor(std::uint64_t i) const {
        assay_tensor_info info{};
        info.size = sizeof info;
        EXPECT_EQ(gguf_loader().tensor(handle_, i, &info), ASSAY_OK);
        return info;
    }
    /// The entry with this key; key is null when there is none.
    [[nodiscard]] assay_meta meta(const std::string& key) const {
        for (std::uint64_t i = 0; i < gguf_loader().meta_count(handle_); ++i) {
            assay_meta entry{};
            entry.size = sizeof entry;
            if (gguf_loader().meta(handle_, i, &entry) == ASSAY_OK && entry.key == key)
                return entry;
        }
        return {};
    }

private:
    assay_status status_ = ASSAY_INTERNAL;
    void* handle_ = nullptr;
    std::string words_;
};

}  // namespace loader_test
