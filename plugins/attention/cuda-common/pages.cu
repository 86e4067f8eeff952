// Writing tokens into pages and reading them back. Bandwidth-bound: each entry is moved once.
// Pages are dense [page][token][head][entry] (plugins/attention/common/layer.hpp).

#include "launchers.hpp"
#include "rows.cuh"

namespace attention::gpu {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) append(const AppendParams p) {
    cuda::wait_for_inputs();
    const int row = p.cu_q[0] + static_cast<int>(blockIdx.x);
    if (row >= p.cu_q[p.num_seqs]) return;
    const int slot = p.slot_map[row];
    if (slot < 0) return;
    const View to{p.plane, p.dtype, 0, 0};
    const int n = p.heads * p.dim;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
        const int head = i / p.dim, d = i - head * p.dim;
        store(to, std::int64_t{slot} * n + i,
              load(p.from, row * p.from.row_stride + head * p.from.head_stride + d));
    }
}

__global__ void __launch_bounds__(kThreads) read(const ReadParams p) {
    cuda::wait_for_inputs();
    const std::int64_t row = blockIdx.x;
    const int slot = p.slots[row];
    const View from{const_cast<void*>(p.plane), p.dtype, 0, 0};
    for (int i = static_cast<int>(threadIdx.x); i < p.width; i += kThreads)
        p.out[row * p.out_stride + i] = slot < 0 ? 0.0F : load(from, std::int64_t{slot} * p.width + i);
}

}  // namespace

cudaError_t launch_append(const AppendParams& p, std::int32_t num_tokens, const assay_stream* s) {
    return cuda::launch(append, dim3(static_cast<unsigned>(num_tokens)), dim3(kThreads), 0, s, true, p);
}

cudaError_t launch_read(const ReadParams& p, std::int64_t num_slots, const assay_stream* s) {
    return cuda::launch(read, dim3(static_cast<unsigned>(num_slots)), dim3(kThreads), 0, s, true, p);
}

}  // namespace attention::gpu
