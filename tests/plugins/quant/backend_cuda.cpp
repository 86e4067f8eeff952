// The image cuda-ggml behind the table of the host's: every call's arguments are mirrored on the GPU, and
// weights are repacked as the daemon does it.

#include "tests/plugins/quant/support.hpp"
#include "tests/support/build_dir.hpp"
#include "tests/support/cuda_mirror.hpp"

#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace quant_test {
namespace {

using support::CudaDevice;
using support::CudaMirror;
using enum CudaMirror::Access;

const assay_quant& real() {
    static const assay_quant& table = []() -> const assay_quant& {
        void* handle = dlopen((support::build_dir() + "/plugins/quant/cuda-ggml.so").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) throw std::runtime_error{dlerror()};
        const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
        if (module->open(nullptr, nullptr) != ASSAY_OK) throw std::runtime_error{"open"};
        return *static_cast<const assay_quant*>(module->query(ASSAY_KIND_QUANT));
    }();
    return table;
}

/// A weight over there, in the layout that the image serves.
assay_weight mirrored(CudaMirror& mirror, void* self, const assay_weight& host, std::int32_t op) {
    assay_weight stored = host;
    stored.data = mirror.of(host.data, host.data_bytes);
    static char layout[64];
    std::uint64_t bytes = 0;
    assay_error err = sdk::make_error();
    if (real().packed_layout(self, &stored, op, layout, &bytes, &err) != ASSAY_OK) throw std::runtime_error{err.text};
    if (std::strcmp(layout, ASSAY_LAYOUT_STORED) == 0) return stored;
    assay_weight packed = stored;
    packed.layout = "planar/1";
    packed.data_bytes = bytes;
    void* data = mirror.scratch(bytes);
    packed.data = data;
    if (real().repack(self, &stored, &packed, data, CudaDevice::get()->stream(), &err) != ASSAY_OK)
        throw std::runtime_error{err.text};
    return packed;
}

template <std::int32_t kOp>
assay_status run(void* self, const assay_matmul* a, const assay_stream*, assay_error* err) {
    CudaMirror mirror;
    assay_matmul over = *a;
    assay_weight weights[ASSAY_MAX_FUSED];
    over.x = mirror.view(a->x);
    for (std::int32_t i = 0; i < a->num_weights; ++i) {
        weights[i] = mirrored(mirror, self, *a->w[i], kOp);
        over.w[i] = &weights[i];
        if (i == 0 || a->glu == ASSAY_GLU_NONE) over.y[i] = mirror.view(a->y[i], write);
        over.bias[i] = mirror.view(a->bias[i]);
    }
    over.row_ids = mirror.array(a->row_ids, static_cast<std::uint64_t>(a->num_slots));
    over.expert_offset = mirror.array(a->expert_offset, static_cast<std::uint64_t>(a->w[0]->experts) + 1);
    over.workspace = mirror.scratch(a->workspace_bytes);
    const auto call = kOp == ASSAY_Q_GROUPED   ? real().grouped_matmul
                      : kOp == ASSAY_Q_BATCHED ? real().batched_matmul
                                               : real().matmul;
    const assay_status status = call(self, &over, CudaDevice::get()->stream(), err);
    mirror.finish();
    return status;
}

assay_status rows(void* self, const assay_weight* w, const int32_t* ids, int64_t num_ids, const assay_tensor* out,
                  const assay_stream*, assay_error* err) {
    CudaMirror mirror;
    const assay_weight weight = mirrored(mirror, self, *w, ASSAY_Q_ROWS);
    const assay_tensor to = mirror.view(*out, write);
    const assay_status status = real().rows(self, &weight, mirror.array(ids, static_cast<std::uint64_t>(num_ids)), num_ids, &to,
                                            CudaDevice::get()->stream(), err);
    mirror.finish();
    return status;
}

}  // namespace

const assay_quant& image() {
    static const assay_quant table = [] {
        assay_quant t = real();
        t.matmul = run<ASSAY_Q_MATMUL>;
        t.batched_matmul = run<ASSAY_Q_BATCHED>;
        t.grouped_matmul = run<ASSAY_Q_GROUPED>;
        t.rows = rows;
        return t;
    }();
    return table;
}

/// The two ways to the tensor cores. The library's is left out where TEST_WITHOUT_CUBLAS is set.
std::vector<std::string> tiers() {
    if (std::getenv("TEST_WITHOUT_CUBLAS") != nullptr) return {"mma"};
    return {"mma", "cublas"};
}

Backend::Backend(const std::string& tier, int) : tier_{tier} {
    if (CudaDevice::get() == nullptr) throw std::runtime_error{CudaDevice::why()};
    const assay_option option{"gemm", tier.c_str()};
    assay_quant_config config{};
    config.size = sizeof config;
    config.device = &CudaDevice::get()->ref();
    config.options = &option;
    config.num_options = 1;
    assay_error err = sdk::make_error();
    char name[32];
    if (real().create(nullptr, &config, &self_, name, &err) != ASSAY_OK) throw std::runtime_error{err.text};
    if (std::strstr(name, tier.c_str()) == nullptr) throw std::runtime_error{"asked for " + tier + ", got " + name};
}

Backend::~Backend() {
    real().destroy(self_);
}

Arithmetic Backend::arithmetic(const ggml::Format& format, std::int32_t op, std::int64_t slots, std::uint32_t flags) const {
    const std::string_view id = format.abi.id;
    const bool is_quantized = format.abi.block_cols > 1;
    if ((flags & ASSAY_MM_PRECISE) != 0) return Arithmetic::f32;
    if (op != ASSAY_Q_GROUPED && slots > 8 && (is_quantized || id == "f16" || id == "bf16")) return Arithmetic::half;
    const bool has_integer_kernel = id == "q4_k" || id == "q5_k" || id == "q6_k" || id == "q8_0";
    return has_integer_kernel ? Arithmetic::integer : Arithmetic::f32;
}

assay_stream stream(const assay_lanes*) {
    return *CudaDevice::get()->stream();
}

}  // namespace quant_test
