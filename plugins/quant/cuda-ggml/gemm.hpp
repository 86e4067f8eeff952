#pragma once

// y = alpha x W^T (+ y) for 16-bit x and W with f32 sums and output, on tensor cores: the library's, or
// the one of gemm_mma.cu, which every supported GPU has.

#include "plugins/quant/cuda-ggml/convert.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace cuda_ggml {

/// `batch` products side by side; strides in elements.
struct Gemm {
    Half type;
    const std::uint16_t *x, *w;  // [m, k] and [n, k], innermost 1
    std::int64_t x_stride, w_stride, x_batch, w_batch;
    float* y;                    // [m, n]
    std::int64_t y_stride, y_batch;
    std::int32_t m, n, k, batch;  // k a multiple of 8
    const float *alpha, *beta;    // device memory; beta 0 or 1
};

/// gemm_mma.cu: mma.sync.
cudaError_t launch_mma(const Gemm& g, const assay_stream* s);

/// cuBLAS, loaded when asked for: nothing links it. One handle; calls from several threads take turns.
class Cublas {
public:
    static constexpr std::uint64_t kWorkspaceBytes = 32ull << 20;

    /// Throws sdk::Error when the library is not there, naming what was tried. The device is current.
    /// @param library  a path; empty: the loader's search for the version this was built with
    explicit Cublas(const std::string& library);
    ~Cublas();
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;

    /// @param workspace  [kWorkspaceBytes], private to the stream
    [[nodiscard]] assay_status run(const Gemm& g, void* workspace, const assay_stream* s, assay_error* err);

private:
    struct Library;
    std::unique_ptr<Library> library_;
};

}  // namespace cuda_ggml
