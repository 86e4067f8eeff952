#include "tools/faults/healthy.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <vector>

namespace faults {
namespace {

Healthy tables;
std::vector<const assay_module*>* modules = nullptr;

std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&assay_module_entry), &info) == 0)
        throw sdk::Error{ASSAY_INTERNAL, "cannot tell where this image lies"};
    return std::filesystem::canonical(info.dli_fname).parent_path();
}

const void* open_image(const assay_host* host, const char* file, const char* kind) {
    const std::string path = (own_folder() / "../plugins" / file).string();
    void* const image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (image == nullptr)
        throw sdk::Error{ASSAY_IO, std::string{"the plugin to wrap: "} + dlerror()};
    const auto* module = static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
    if (module == nullptr || module->magic != ASSAY_MAGIC || module->abi_major != ASSAY_ABI_MAJOR ||
        module->abi_minor != ASSAY_ABI_MINOR)
        throw sdk::Error{ASSAY_UNSUPPORTED, path + ": no image of this ABI"};
    assay_error err = sdk::make_error();
    if (module->open(host, &err) != ASSAY_OK)
        throw sdk::Error{ASSAY_INTERNAL, path + ": " + err.text};
    modules->push_back(module);
    const void* const table = module->query(kind);
    if (table == nullptr) throw sdk::Error{ASSAY_UNSUPPORTED, path + ": has no table of " + kind};
    return table;
}

}  // namespace

void open_healthy(const assay_host* host) {
    if (modules == nullptr)
        modules = new std::vector<const assay_module*>;  // no destructor at exit
    tables.quant =
        static_cast<const assay_quant*>(open_image(host, "quant/ggml.so", ASSAY_KIND_QUANT));
    tables.attention = static_cast<const assay_attention*>(
        open_image(host, "attention/cpu-flash.so", ASSAY_KIND_ATTENTION));
    tables.device =
        static_cast<const assay_device*>(open_image(host, "device/cpu.so", ASSAY_KIND_DEVICE));
}

// The wrapped images may be open for the host as well, under their own names, and an image has one
// state: they stay open.
void close_healthy() {
    modules->clear();
}

const Healthy& healthy() {
    return tables;
}

}  // namespace faults
