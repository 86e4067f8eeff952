// The smallest quant plugin: one format, rows and matmul on the host's processor.
//
// Format "example_i8": a block is one f32 scale and 32 signed bytes, and stands for 32 weights
// along K; weight = scale * byte.

#include "cxx/plugin.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kBlockBytes = 4 + kBlock;
constexpr char kFormatId[] = "example_i8";

/// The definition: 32 weights of one block.
void dequantize(const unsigned char* block, float* out) {
    float scale;
    std::memcpy(&scale, block, sizeof scale);
    for (std::int64_t i = 0; i < kBlock; ++i)
        out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[4 + i]));
}

const unsigned char* row_of(const assay_weight& w, std::int64_t row) {
    return static_cast<const unsigned char*>(w.data) + row * (w.cols / kBlock) * kBlockBytes;
}

bool is_ours(const assay_weight& w) {
    return std::strcmp(w.format, kFormatId) == 0 && w.cols % kBlock == 0 &&
           std::strcmp(w.layout, ASSAY_LAYOUT_STORED) == 0;
}

struct Instance {};  // nothing to keep

assay_status create(const assay_host*, const assay_quant_config* config, void** self, char tier[32],
                    assay_error* err) {
    return sdk::guard(err, [&] {
        sdk::check_options(*config, {});
        if (std::strcmp(config->device->kind, "cpu") != 0)
            throw sdk::Error{ASSAY_UNSUPPORTED, std::string{"device kind "} + config->device->kind +
                                                    "; this is for cpu"};
        *self = std::make_unique<Instance>().release();
        std::snprintf(tier, 32, "plain loops");
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

/// Every "no" names the first condition that fails: the operator reads it when the daemon refuses.
std::int32_t supports(void*, const assay_quant_query* q, assay_error* why) {
    const auto no = [&](const char* reason) {
        sdk::fail(why, ASSAY_UNSUPPORTED, "%s", reason);
        return std::int32_t{ASSAY_NONE};
    };
    if (std::strcmp(q->format, kFormatId) != 0) return no("format: only example_i8");
    if (q->k % kBlock != 0) return no("k: not a multiple of 32");
    if (q->y_dtype != ASSAY_F32) return no("y: only f32");
    if (q->op == ASSAY_Q_ROWS) return ASSAY_CORRECT;
    if (q->op != ASSAY_Q_MATMUL) return no("op: only rows and matmul");
    if (q->x_dtype != ASSAY_F32) return no("x: only f32");
    if (q->num_weights != 1 || q->glu != ASSAY_GLU_NONE) return no("fused products: none");
    return ASSAY_CORRECT;
}

std::uint64_t workspace_bytes(void*, std::int32_t, const assay_weight* const*, std::int32_t,
                              std::int64_t) {
    return 0;
}

assay_status rows(void*, const assay_weight* w, const std::int32_t* row_ids, std::int64_t num_ids,
                  const assay_tensor* out, const assay_stream* s, assay_error* err) {
    if (!is_ours(*w) || out->dtype != ASSAY_F32)
        return sdk::fail(err, ASSAY_INVALID, "rows: not a weight of %s", kFormatId);
    sdk::parallel_for(s->lanes, num_ids, [&](std::uint32_t i, std::uint32_t) {
        float* to = sdk::at<float>(*out, i);
        if (row_ids[i] < 0 || row_ids[i] >= w->experts * w->rows) {
            for (std::int64_t k = 0; k < w->cols; ++k)
                to[k] = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        const unsigned char* block = row_of(*w, row_ids[i]);
        for (std::int64_t k = 0; k < w->cols; k += kBlock, block += kBlockBytes)
            dequantize(block, to + k);
    });
    return ASSAY_OK;
}

assay_status matmul(void*, const assay_matmul* a, const assay_stream* s, assay_error* err) {
    const assay_weight& w = *a->w[0];
    if (a->num_weights != 1 || a->glu != ASSAY_GLU_NONE || !is_ours(w) || w.experts != 1 ||
        a->x.shape[1] != w.cols || a->y[0].shape[1] != w.rows || a->x.shape[0] != a->y[0].shape[0])
        return sdk::fail(err, ASSAY_INVALID,
                         "matmul: shapes, or a request that supports() refuses");
    const float* bias = static_cast<const float*>(a->bias[0].data);
    // One item a weight row: it is read once for all rows of x.
    sdk::parallel_for(s->lanes, w.rows, [&](std::uint32_t n, std::uint32_t) {
        for (std::int64_t m = 0; m < a->x.shape[0]; ++m) {
            const float* x = sdk::at<float>(a->x, m);
            const unsigned char* block = row_of(w, n);
            double sum = bias != nullptr ? double{bias[n]} : 0.0;
            for (std::int64_t k = 0; k < w.cols; k += kBlock, block += kBlockBytes) {
                float weight[kBlock];
                dequantize(block, weight);
                for (std::int64_t i = 0; i < kBlock; ++i)
                    sum += double{weight[i]} * double{x[k + i]};
            }
            float* y = sdk::at<float>(a->y[0], m, n);
            *y = static_cast<float>((a->flags & ASSAY_MM_ACCUMULATE) != 0 ? *y + sum : sum);
        }
    });
    return ASSAY_OK;
}

assay_status refuse(void*, const assay_matmul*, const assay_stream*, assay_error* err) {
    return sdk::fail(err, ASSAY_UNSUPPORTED, "only rows and matmul");
}

constexpr assay_quant_format kFormat{
    sizeof(assay_quant_format), kFormatId, 1, kBlock, kBlockBytes, 0, nullptr, "this file"};
constexpr const assay_quant_format* kFormats[] = {&kFormat};

constexpr assay_quant kQuant = {
    .size = sizeof(assay_quant),
    .num_formats = 1,
    .formats = kFormats,
    .flags = ASSAY_QUANT_ROW_INVARIANT,
    .create = create,
    .destroy = destroy,
    .supports = supports,
    .packed_layout = nullptr,  // always the stored form
    .repack = nullptr,
    .workspace_bytes = workspace_bytes,
    .rows = rows,
    .matmul = matmul,
    .batched_matmul = refuse,
    .grouped_matmul = refuse,
    .scan = nullptr,
};

assay_status module_open(const assay_host*, assay_error*) {
    return ASSAY_OK;
}

const void* module_query(const char* interface_id) {
    return std::strcmp(interface_id, ASSAY_KIND_QUANT) == 0 ? &kQuant : nullptr;
}

void module_close() {}

}  // namespace

extern "C" const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "example-quant",
    .version = "0.1.0",
    .vendor = "example",
    .build = "C++20",
    .kinds = ASSAY_KIND_QUANT,
    .open = module_open,
    .query = module_query,
    .close = module_close,
};
