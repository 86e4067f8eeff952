// The image "ggml": the tensor types of GGUF files on a CPU. The only file that knows the ABI's
// tables; everything else is plain functions.

#include "cxx/plugin.hpp"

#include "plugins/quant/ggml/cpu.hpp"
#include "plugins/quant/ggml/matmul.hpp"
#include "plugins/quant/ggml/query.hpp"

#include <cstring>
#include <memory>
#include <thread>

namespace {

struct Instance {
    const ggml::Tier* tier;
    std::uint32_t num_lanes;
};

Instance& instance(void* self) {
    return *static_cast<Instance*>(self);
}

assay_status create(const assay_host*, const assay_quant_config* config, void** self, char tier[32],
                    assay_error* err) {
    return sdk::guard(err, [&] {
        const assay_device_ref* device = config->device;
        if (device == nullptr || std::strcmp(device->kind, "cpu") != 0)
            throw sdk::Error{ASSAY_UNSUPPORTED,
                             "device \"" + std::string{device == nullptr ? "" : device->kind} +
                                 "\": this plugin runs on \"cpu\""};
        sdk::check_options(*config, {"tier"});
        auto made = std::make_unique<Instance>();
        made->tier = ggml::choose_tier(sdk::option(*config, "tier", "auto"));
        made->num_lanes = device->num_units > 0 ? static_cast<std::uint32_t>(device->num_units)
                                                : std::max(1u, std::thread::hardware_concurrency());
        std::snprintf(tier, 32, "%s", made->tier->name);
        *self = made.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

int32_t supports(void* self, const assay_quant_query* query, assay_error* why) {
    char text[200];
    const char* reason = ggml::refusal(*query, "on a CPU activations are f32", text, sizeof text);
    if (query->op == ASSAY_Q_REPACK && reason == nullptr)
        reason = "there is no packed layout: weights are used as they are stored";
    if (reason != nullptr) {
        sdk::fail(why, ASSAY_UNSUPPORTED, "%s", reason);
        return ASSAY_NONE;
    }
    if (query->op == ASSAY_Q_ROWS) return ASSAY_CORRECT;
    const bool precise = (query->flags & ASSAY_MM_PRECISE) != 0;
    const ggml::Format& format = *ggml::find_format(query->format);
    return instance(self).tier->kernel(format, precise)->is_tuned ? ASSAY_TUNED : ASSAY_CORRECT;
}

uint64_t workspace_bytes(void* self, int32_t op, const assay_weight* const* w, int32_t num_weights,
                         int64_t max_m) {
    return ggml::workspace_bytes(*instance(self).tier, instance(self).num_lanes, op, w, num_weights,
                                 max_m);
}

assay_status rows(void*, const assay_weight* w, const int32_t* row_ids, int64_t num_ids,
                  const assay_tensor* out, const assay_stream* s, assay_error* err) {
    return ggml::run_rows(*w, row_ids, num_ids, *out, *s, err);
}

template <std::int32_t kOp>
assay_status run(void* self, const assay_matmul* a, const assay_stream* s, assay_error* err) {
    return ggml::run_matmul(*instance(self).tier, kOp, *a, *s, err);
}

assay_status scan(const char* format, const void* blocks, uint64_t num_blocks, int64_t* bad_block) {
    const ggml::Format* f = ggml::find_format(format);
    if (f == nullptr) return ASSAY_UNSUPPORTED;
    const auto* block = static_cast<const std::uint8_t*>(blocks);
    for (uint64_t i = 0; i < num_blocks; ++i, block += f->abi.block_bytes) {
        if (!f->is_bad(block)) continue;
        *bad_block = static_cast<int64_t>(i);
        return ASSAY_OK;
    }
    *bad_block = -1;
    return ASSAY_OK;
}

// Filled by open(): the format table is a function's answer, not a constant of this file.
assay_quant quant{};

assay_status open(const assay_host*, assay_error*) {
    quant.size = sizeof quant;
    quant.num_formats = static_cast<std::uint32_t>(ggml::formats().size());
    quant.formats = ggml::abi_formats();
    quant.flags = ASSAY_QUANT_ROW_INVARIANT;
    quant.create = create;
    quant.destroy = destroy;
    quant.supports = supports;
    quant.workspace_bytes = workspace_bytes;
    quant.rows = rows;
    quant.matmul = run<ASSAY_Q_MATMUL>;
    quant.batched_matmul = run<ASSAY_Q_BATCHED>;
    quant.grouped_matmul = run<ASSAY_Q_GROUPED>;
    quant.scan = scan;
    return ASSAY_OK;
}

const void* query(const char* interface_id) {
    return std::strcmp(interface_id, ASSAY_KIND_QUANT) == 0 ? &quant : nullptr;
}

}  // namespace

extern "C" {
const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "ggml",
    .version = "0.1.0",
    .vendor = "assay",
    .build = "g++ " __VERSION__ "; x86-64: reference, avx2, avx512, avx512-vnni",
    .kinds = ASSAY_KIND_QUANT,
    .open = open,
    .query = query,
    .close = [] {},
};
}
