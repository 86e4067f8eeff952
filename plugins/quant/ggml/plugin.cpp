// The image "ggml": the tensor types of GGUF files on a CPU. The only file that knows the ABI's
// tables; everything else is plain functions.

#include "cxx/plugin.hpp"

#include "plugins/quant/ggml/cpu.hpp"
#include "plugins/quant/ggml/matmul.hpp"

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

/// The first reason why `q` cannot run, or null. `why` has room for the words that need numbers.
const char* refusal(const assay_quant_query& q, char* why, std::size_t room) {
    const ggml::Format* format = q.format == nullptr ? nullptr : ggml::find_format(q.format);
    if (format == nullptr) {
        std::snprintf(why, room, "format \"%s\" is unknown", q.format == nullptr ? "" : q.format);
        return why;
    }
    if (q.k < 1 || q.k % format->abi.block_cols != 0) {
        std::snprintf(why, room, "%s: K is %lld, want a multiple of %u", q.format,
                      static_cast<long long>(q.k), format->abi.block_cols);
        return why;
    }
    if (q.op == ASSAY_Q_ROWS) {
        if (q.y_dtype == ASSAY_F32 || q.y_dtype == ASSAY_F16 || q.y_dtype == ASSAY_BF16)
            return nullptr;
        return "rows: out must be f32, f16 or bf16";
    }
    if (q.op == ASSAY_Q_REPACK)
        return "there is no packed layout: weights are used as they are stored";
    if (q.op != ASSAY_Q_MATMUL && q.op != ASSAY_Q_BATCHED && q.op != ASSAY_Q_GROUPED)
        return "the operation is unknown";
    if (q.x_dtype != ASSAY_F32) return "x must be f32: on a CPU activations are f32";
    if (q.y_dtype != ASSAY_F32) return "y must be f32: on a CPU activations are f32";
    if (q.num_weights < 1 || q.num_weights > ASSAY_MAX_FUSED) return "num_weights must be 1 to 4";
    if (q.glu < ASSAY_GLU_NONE || q.glu > ASSAY_GLU_SILU_CLAMP) return "the glu is unknown";
    if (q.glu != ASSAY_GLU_NONE && q.num_weights != 2) return "glu needs two weights";
    if (q.glu != ASSAY_GLU_NONE && q.op == ASSAY_Q_BATCHED) return "batched products have no glu";
    if (q.bias && q.op == ASSAY_Q_BATCHED) return "batched products have no bias";
    if ((q.flags & ~(ASSAY_MM_ACCUMULATE | ASSAY_MM_PRECISE | ASSAY_MM_FINE)) != 0)
        return "flags: unknown bits";
    if (q.op == ASSAY_Q_MATMUL && q.experts > 1)
        return "matmul: a weight with experts; use grouped or batched";
    return nullptr;
}

int32_t supports(void* self, const assay_quant_query* query, assay_error* why) {
    char text[200];
    if (const char* reason = refusal(*query, text, sizeof text); reason != nullptr) {
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
