// The image "cuda-ggml": the tensor types of GGUF files on an NVIDIA GPU.

#include "plugins/cuda/status.hpp"
#include "plugins/quant/cuda-ggml/matmul.hpp"
#include "plugins/quant/ggml/query.hpp"

#include <cstring>

namespace {

using cuda_ggml::Instance;

Instance& instance(void* self) {
    return *static_cast<Instance*>(self);
}

assay_status create(const assay_host* host, const assay_quant_config* config, void** self, char tier[32],
                    assay_error* err) {
    return sdk::guard(err, [&] {
        const assay_device_ref* device = config->device;
        if (device == nullptr || std::strcmp(device->kind, "cuda") != 0)
            throw sdk::Error{ASSAY_UNSUPPORTED, "device \"" + std::string{device == nullptr ? "" : device->kind} +
                                                    "\": this plugin runs on \"cuda\""};
        sdk::check_options(*config, {"gemm", "cublas_library"});
        cuda::require_target(*device);
        const std::string_view gemm = sdk::option(*config, "gemm", "auto");
        if (gemm != "auto" && gemm != "cublas" && gemm != "mma")
            throw sdk::Error{ASSAY_UNSUPPORTED, "option gemm: \"" + std::string{gemm} + "\"; known: auto, cublas, mma"};
        auto made = std::make_unique<Instance>();
        made->device = *device;
        cuda::check(cudaSetDevice(device->ordinal), "device " + std::to_string(device->ordinal));
        if (gemm != "mma") {
            try {
                made->cublas = std::make_unique<cuda_ggml::Cublas>(std::string{sdk::option(*config, "cublas_library")});
            } catch (const sdk::Error& e) {
                if (gemm == "cublas") throw;
                sdk::log(host, ASSAY_WARN, "quant=cuda-ggml gemm=mma reason=\"" + std::string{e.what()} + "\"");
            }
        }
        std::snprintf(tier, 32, "sm_%d, gemm %s", device->arch, made->cublas != nullptr ? "cublas" : "mma");
        *self = made.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

int32_t supports(void*, const assay_quant_query* query, assay_error* why) {
    char text[200];
    const char* reason =
        ggml::refusal(*query, "activations between kernels are f32", text, sizeof text);
    const ggml::Format* format = query->format == nullptr ? nullptr : ggml::find_format(query->format);
    if (reason == nullptr && query->op == ASSAY_Q_REPACK &&
        cuda_ggml::fields_of(cuda_ggml::format_id(*format)).count == 0)
        reason = "the stored form of this format is served as it is";
    if (reason != nullptr) {
        sdk::fail(why, ASSAY_UNSUPPORTED, "%s", reason);
        return ASSAY_NONE;
    }
    switch (cuda_ggml::format_id(*format)) {
        using enum cuda_ggml::FormatId;
        case q4_k:
        case q5_k:
        case q6_k:
        case q8_0:
        case f16:
        case bf16:
        case f32:
            return ASSAY_TUNED;
        default:
            return ASSAY_CORRECT;
    }
}

assay_status packed_layout(void*, const assay_weight* stored, int32_t, char layout[64], uint64_t* packed_bytes,
                           assay_error* err) {
    if (const assay_status s = cuda_ggml::check(stored, err); s != ASSAY_OK) return s;
    const ggml::Format& format = *ggml::find_format(stored->format);
    const std::int64_t num_blocks = stored->experts * stored->rows * (stored->cols / format.abi.block_cols);
    *packed_bytes = cuda_ggml::planar_bytes(cuda_ggml::format_id(format), num_blocks);
    std::snprintf(layout, 64, "%s", *packed_bytes > 0 ? cuda_ggml::kPlanarLayout : ASSAY_LAYOUT_STORED);
    return ASSAY_OK;
}

assay_status repack(void*, const assay_weight* stored, const assay_weight* packed, void* packed_data,
                    const assay_stream* s, assay_error* err) {
    assay_weight target = *packed;
    target.data = packed_data;
    if (const assay_status status = cuda_ggml::check(stored, err); status != ASSAY_OK) return status;
    if (const assay_status status = cuda_ggml::check(&target, err); status != ASSAY_OK) return status;
    const ggml::Format& format = *ggml::find_format(stored->format);
    const cuda_ggml::WeightView view = cuda_ggml::view_of(target);
    if (!view.is_planar || cuda_ggml::view_of(*stored).is_planar)
        return sdk::fail(err, ASSAY_INVALID, "repack: want a stored weight and a layout that packed_layout() named");
    const std::int64_t num_blocks = stored->experts * stored->rows * (stored->cols / format.abi.block_cols);
    return cuda::status_of(cuda_ggml::launch_repack(static_cast<const std::uint8_t*>(stored->data), num_blocks, view,
                                                    format.abi.block_bytes, s),
                           err, "repacking");
}

uint64_t workspace_bytes(void* self, int32_t op, const assay_weight* const* w, int32_t num_weights, int64_t max_m) {
    return cuda_ggml::workspace_bytes(instance(self), op, w, num_weights, max_m);
}

assay_status rows(void*, const assay_weight* w, const int32_t* row_ids, int64_t num_ids, const assay_tensor* out,
                  const assay_stream* s, assay_error* err) {
    if (const assay_status status = cuda_ggml::check(w, err); status != ASSAY_OK) return status;
    if (num_ids == 0) return ASSAY_OK;
    if (out->dtype != ASSAY_F32 && out->dtype != ASSAY_F16 && out->dtype != ASSAY_BF16)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "rows: out is %s, want f32, f16 or bf16", sdk::dtype_name(out->dtype));
    if (num_ids < 0 || row_ids == nullptr || out->data == nullptr || out->rank != 2 || out->shape[0] != num_ids ||
        out->shape[1] != w->cols || out->stride[1] != 1)
        return sdk::fail(err, ASSAY_INVALID, "rows: out or row_ids do not fit [%lld, %lld]",
                         static_cast<long long>(num_ids), static_cast<long long>(w->cols));
    return cuda::status_of(
        cuda_ggml::launch_rows(cuda_ggml::view_of(*w), w->experts * w->rows, row_ids, num_ids, *out, s), err, "rows");
}

template <std::int32_t kOp>
assay_status run(void* self, const assay_matmul* a, const assay_stream* s, assay_error* err) {
    return cuda_ggml::run_matmul(instance(self), kOp, *a, *s, err);
}

assay_status scan(const char* format, const void* blocks, uint64_t num_blocks, int64_t* bad_block) {
    const ggml::Format* f = ggml::find_format(format);
    if (f == nullptr) return ASSAY_UNSUPPORTED;
    const auto* block = static_cast<const std::uint8_t*>(blocks);
    *bad_block = -1;
    for (uint64_t i = 0; i < num_blocks && *bad_block < 0; ++i, block += f->abi.block_bytes)
        if (f->is_bad(block)) *bad_block = static_cast<int64_t>(i);
    return ASSAY_OK;
}

// Filled by open(): the format table is a function's answer, not a constant of this file.
assay_quant quant{};

assay_status open(const assay_host*, assay_error*) {
    quant.size = sizeof quant;
    quant.num_formats = static_cast<std::uint32_t>(ggml::formats().size());
    quant.formats = ggml::abi_formats();
    quant.flags = 0;  // which kernel runs depends on the number of rows
    quant.create = create;
    quant.destroy = destroy;
    quant.supports = supports;
    quant.packed_layout = packed_layout;
    quant.repack = repack;
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
    .id = "cuda-ggml",
    .version = "0.1.0",
    .vendor = "assay",
    .build = "CUDA " ASSAY_CUDA_VERSION "; compute capability " ASSAY_CUDA_TARGETS,
    .kinds = ASSAY_KIND_QUANT,
    .open = open,
    .query = query,
    .close = [] {},
};
}
