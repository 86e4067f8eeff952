// The image ggml, as it is.

#include "tests/plugins/quant/support.hpp"

#include "plugins/quant/ggml/cpu.hpp"
#include "tests/support/build_dir.hpp"

#include <dlfcn.h>
#include <stdexcept>

namespace quant_test {
namespace {

const assay_device_ref& cpu_device(int num_lanes) {
    static thread_local assay_device_ref device;
    device = {};
    device.size = sizeof device;
    device.kind = "cpu";
    device.num_units = num_lanes;
    return device;
}

}  // namespace

const assay_quant& image() {
    static const assay_quant& quant = []() -> const assay_quant& {
        void* handle = dlopen((support::build_dir() + "/plugins/quant/ggml.so").c_str(),
                              RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) throw std::runtime_error{dlerror()};
        const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
        if (module == nullptr) throw std::runtime_error{dlerror()};
        assay_error err = sdk::make_error();
        if (module->open(nullptr, &err) != ASSAY_OK) throw std::runtime_error{err.text};
        return *static_cast<const assay_quant*>(module->query(ASSAY_KIND_QUANT));
    }();
    return quant;
}

std::vector<std::string> tiers() {
    std::vector<std::string> list;
    for (std::string_view tier : ggml::kTierNames)
        if (ggml::missing_features(tier).empty()) list.emplace_back(tier);
    return list;
}

Backend::Backend(const std::string& tier, int num_lanes) : tier_{tier} {
    const assay_option option{"tier", tier.c_str()};
    assay_quant_config config{};
    config.size = sizeof config;
    config.device = &cpu_device(num_lanes);
    config.options = &option;
    config.num_options = 1;
    assay_error err = sdk::make_error();
    char name[32];
    if (image().create(nullptr, &config, &self_, name, &err) != ASSAY_OK)
        throw std::runtime_error{err.text};
    if (tier != name) throw std::runtime_error{"asked for " + tier + ", got " + name};
}

Backend::~Backend() {
    image().destroy(self_);
}

Arithmetic Backend::arithmetic(const ggml::Format& format, std::int32_t, std::int64_t,
                               std::uint32_t flags) const {
    if (is_reference()) return Arithmetic::f64;
    const bool is_exact = format.abi.block_cols == 1 || (flags & ASSAY_MM_PRECISE) != 0;
    return is_exact ? Arithmetic::f32 : Arithmetic::integer;
}

assay_stream stream(const assay_lanes* lanes) {
    static thread_local assay_device_ref device;
    device = cpu_device(static_cast<int>(lanes->width));
    return {&device, nullptr, lanes};
}

}  // namespace quant_test
