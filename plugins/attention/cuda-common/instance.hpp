#pragma once

// An instance of either CUDA image, and what an image adds to the shared tables.

#include "../common/layer.hpp"
#include "launchers.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attention::gpu {

/// The kernels of a layer: `plain` takes every layer, the others those that their image names.
enum class Tier { plain, mma, wgmma };
[[nodiscard]] const char* tier_name(Tier tier) noexcept;

/// Whether the build holds code for compute capability 9.0 with its own instructions.
[[nodiscard]] constexpr bool has_wgmma() noexcept {
    return std::string_view{ASSAY_CUDA_TARGETS}.find("90a") != std::string_view::npos;
}

struct LayerPlan {
    Layer layer;
    Tier tier;
    std::size_t geometry;  // index into Instance::geometries
};

struct Instance {
    Cache cache{};
    std::int32_t io_dtype = 0;
    std::int32_t num_units = 1;  // multiprocessors
    std::uint64_t shared_bytes = 0, total_bytes = 0;
    std::vector<LayerPlan> layers;
    std::vector<Geometry> geometries;
    struct {
        std::int64_t max_seqs = 0, max_tokens = 0, max_kv_len = 0;
    } limits;
};

/// What the folder of an image defines.
struct Kernels {
    /// The best tier that takes the layer on this device; `wanted` "auto", or a tier's name. Throws
    /// UNSUPPORTED with the reason when the wanted tier does not take it.
    Tier (*choose)(const Layer& layer, const Cache& cache, const assay_device_ref& device,
                   std::string_view wanted);
    /// Rows of a block of threads and the rule of splits: few_rows, many_rows, wanted_items.
    void (*shape)(const Instance& in, const LayerPlan& layer, Geometry& out);
    /// Queues the attention of a layer, without the merging of splits.
    cudaError_t (*attend)(const Instance& in, const LayerPlan& layer, const AttendParams& p,
                          bool has_few, int many_items, const assay_stream* s);
    /// Index scores and selections; null without an indexer.
    std::uint64_t (*index_bytes)(const Instance& in);
    cudaError_t (*index)(const Instance& in, const LayerPlan& layer, const assay_attn_index_args& a,
                         const BatchParams& batch, const assay_stream* s);
};

extern const Image kImage;      // image.cpp of the image
extern const Kernels kKernels;  // attend.cpp of the image

[[nodiscard]] BatchParams batch_params(const assay_attn_batch& batch, std::int64_t page_tokens);
[[nodiscard]] View view(const assay_tensor& t);

}  // namespace attention::gpu
