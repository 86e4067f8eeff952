// Image "faulty": the CPU plugins with exactly one thing wrong, which the option "fault" names. The
// manifest is what FAULTY_ID and FAULTY_LACKS_PREFILL make of it.

#include "tools/faults/healthy.hpp"

#ifndef FAULTY_ID
#define FAULTY_ID "faulty"
#endif

namespace faults {
namespace {

assay_quant quant{};
assay_attention attention{};
assay_device device{};
assay_ops ops{};

assay_status open(const assay_host* host, assay_error* err) {
    return sdk::guard(err, [&] {
        open_healthy(host);
        make_quant_table(quant);
        make_attention_table(attention);
        make_device_table(device, ops);
    });
}

const void* query(const char* id) {
    if (std::string_view{id} == ASSAY_KIND_QUANT) return &quant;
    if (std::string_view{id} == ASSAY_KIND_ATTENTION) return &attention;
    if (std::string_view{id} == ASSAY_KIND_DEVICE) return &device;
    return nullptr;
}

}  // namespace
}  // namespace faults

extern "C" const assay_module assay_module_entry{
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = FAULTY_ID,
    .version = "0.1.0",
    .vendor = "assay",
    .build = "g++ " __VERSION__ "; wrong on purpose",
    .kinds = ASSAY_KIND_QUANT " " ASSAY_KIND_ATTENTION " " ASSAY_KIND_DEVICE,
    .open = faults::open,
    .query = faults::query,
    .close = faults::close_healthy,
};
