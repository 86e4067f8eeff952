#pragma once

// Tensors as kernels see them: rows over the last dimension, in row-major order of the others.

#include "plugins/cuda/launch.cuh"
#include "plugins/device/common/tensor_rows.hpp"

namespace cuda {

/// Fewer than 2^32 rows: nothing that fits a GPU has more.
template <class T>
struct KernelRows {
    T* data;
    std::int32_t outer;  // dimensions before the last
    std::uint32_t shape[ASSAY_MAX_RANK - 1];
    std::int64_t stride[ASSAY_MAX_RANK - 1];

    __device__ T* operator[](std::int64_t index) const {
        auto row = static_cast<std::uint32_t>(index);
        std::int64_t offset = 0;
        for (int d = outer - 1; d > 0; --d) {
            const std::uint32_t whole = row / shape[d];
            offset += (row - whole * shape[d]) * stride[d];
            row = whole;
        }
        if (outer > 0) offset += row * stride[0];
        return data + offset;
    }
};

template <class T>
KernelRows<T> kernel_rows(const assay_tensor& t) {
    KernelRows<T> rows{};
    rows.data = static_cast<T*>(t.data);
    rows.outer = t.rank - 1;
    for (int d = 0; d + 1 < t.rank; ++d) {
        rows.shape[d] = static_cast<std::uint32_t>(t.shape[d]);
        rows.stride[d] = t.stride[d];
    }
    return rows;
}

inline std::int64_t num_rows(const assay_tensor& t) {
    std::int64_t n = 1;
    for (int d = 0; d + 1 < t.rank; ++d) n *= t.shape[d];
    return n;
}

inline std::int64_t width(const assay_tensor& t) {
    return t.shape[t.rank - 1];
}

/// Launches with overlap; the status of the launch.
template <class... Parameters, class... Arguments>
assay_status run(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                 const assay_stream* s, Arguments&&... arguments) {
    if (s == nullptr) return ASSAY_INVALID;
    return code_of(launch(kernel, grid, block, shared_bytes, s, true,
                          static_cast<Arguments&&>(arguments)...));
}

}  // namespace cuda
