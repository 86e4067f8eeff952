// Which kernels take a layer, and their launches.

#include "../cuda-common/instance.hpp"
#include "gqa.hpp"

#include <algorithm>
#include <string>

namespace attention::gpu {
namespace {

std::int64_t larger_dim(const Layer& l) {
    return std::max(l.key_dim, l.value_dim);
}

/// Why the tensor cores do not take a layer; empty when they do.
std::string mma_refusal(const Layer& l, const Cache& cache) {
    if (cache.dtype == ASSAY_F32) return "an f32 cache has no tensor-core kernel";
    if (l.key_dim % 8 != 0 || l.value_dim % 8 != 0)
        return "head sizes " + std::to_string(l.key_dim) + " and " + std::to_string(l.value_dim) +
               " are not multiples of 8";
    return "";
}

std::string wgmma_refusal(const Layer& l, const Cache& cache, const assay_device_ref& device) {
    if (std::string words = mma_refusal(l, cache); !words.empty()) return words;
    if (device.arch != 90 || !has_wgmma())
        return "compute capability " + std::to_string(device.arch / 10) + "." +
               std::to_string(device.arch % 10) + "; wgmma is of 9.0";
    if (l.key_dim != l.value_dim || (l.key_dim != 64 && l.key_dim != 128))
        return "head sizes " + std::to_string(l.key_dim) + " and " + std::to_string(l.value_dim) +
               "; 64 or 128 are served";
    return "";
}

Tier choose(const Layer& l, const Cache& cache, const assay_device_ref& device,
            std::string_view wanted) {
    const std::string no_mma = mma_refusal(l, cache), no_wgmma = wgmma_refusal(l, cache, device);
    if (wanted == "auto")
        return no_wgmma.empty() ? Tier::wgmma : no_mma.empty() ? Tier::mma : Tier::plain;
    if (wanted == "plain") return Tier::plain;
    if (wanted != "mma" && wanted != "wgmma")
        throw sdk::Error{ASSAY_UNSUPPORTED, "option tier is \"" + std::string{wanted} +
                                                "\"; known: auto, plain, mma, wgmma"};
    const std::string& words = wanted == "mma" ? no_mma : no_wgmma;
    if (!words.empty())
        throw sdk::Error{ASSAY_UNSUPPORTED, "tier " + std::string{wanted} + ": " + words};
    return wanted == "mma" ? Tier::mma : Tier::wgmma;
}

void shape(const Instance&, const LayerPlan& plan, Geometry& g) {
    g.wanted_items = 0;
    if (plan.tier == Tier::plain) {
        g.few_rows = g.many_rows = kPlainRows;
        return;
    }
    g.few_rows = kMmaFewRows;
    g.many_rows = plan.tier == Tier::wgmma
                      ? kWgmmaRows
                      : mma_many_rows(static_cast<std::int32_t>(larger_dim(plan.layer)));
}

cudaError_t attend(const Instance& in, const LayerPlan& plan, const AttendParams& p, bool has_few,
                   int many_items, const assay_stream* s) {
    if (plan.tier == Tier::plain)
        return launch_plain(p, in.cache.dtype, has_few ? 4 * in.num_units : 0, many_items, s);
    if (has_few) {
        const cudaError_t error = launch_mma_few(p, in.cache.dtype, in.num_units, s);
        if (error != cudaSuccess) return error;
    }
    if (many_items == 0) return cudaSuccess;
    return plan.tier == Tier::wgmma ? launch_wgmma_many(p, in.cache.dtype, many_items, s)
                                    : launch_mma_many(p, in.cache.dtype, many_items, s);
}

}  // namespace

const Kernels kKernels{choose, shape, attend, nullptr, nullptr};

}  // namespace attention::gpu
