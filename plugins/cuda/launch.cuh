#pragma once

// Launching kernels on a stream of the ABI, and what every kernel does first and last.
//
// Launches may overlap with the end of the kernel before (programmatic dependent launch, from
// compute capability 9.0 on): a kernel that is launched through here calls wait_for_inputs() before
// it touches anything that an earlier kernel wrote, and before it writes; until then it may read
// what no kernel writes, such as weights. Earlier targets wait by themselves.

#include "plugins/cuda/status.hpp"

#include <cstdint>

namespace cuda {

/// Everything queued before is complete and visible from here on.
__device__ inline void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next kernel may begin to occupy what this one leaves free.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Largest dynamic shared memory of a block, in bytes, by compute capability.
constexpr int max_shared_bytes(int arch) {
    return arch == 90 || arch / 10 == 10 ? 227 << 10 : arch == 80 || arch == 87 ? 163 << 10 : 99 << 10;
}
/// Of the target being compiled; for static_assert in kernels.
#if defined(__CUDA_ARCH__)
constexpr int kMaxSharedBytes = max_shared_bytes(__CUDA_ARCH__ / 10);
#else
constexpr int kMaxSharedBytes = 99 << 10;
#endif

/// Makes the stream's device current on this thread.
inline cudaError_t enter(const assay_stream* s) {
    return cudaSetDevice(s->device->ordinal);
}

/// Queues kernel(arguments...). Dynamic shared memory beyond 48 KiB is asked for here.
/// @param overlap  false for kernels without wait_for_inputs()
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   const assay_stream* s, bool overlap, Arguments&&... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
    if (const cudaError_t error = enter(s); error != cudaSuccess) return error;
    if (shared_bytes > (48u << 10)) {
        const cudaError_t error =
            cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
        if (error != cudaSuccess) return error;
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = static_cast<cudaStream_t>(s->native);
    config.attrs = &attribute;
    config.numAttrs = overlap && s->device->arch >= 90 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// ---- reductions of a warp and of a block -------------------------------------------------------

template <class T, class Op>
__device__ inline T warp_reduce(T value, Op op) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

/// The same value on every thread. `scratch` [32] in shared memory; may be reused after the call.
template <class T, class Op>
__device__ inline T block_reduce(T value, T* scratch, Op op) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int num_warps = (static_cast<int>(blockDim.x) + 31) / 32;
    value = warp_reduce(value, op);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    // Every warp reduces the warps' values; lanes beyond them repeat the first, which is then left out.
    const T other = scratch[lane < num_warps ? lane : 0];
    value = other;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const T next = __shfl_down_sync(0xffffffffu, value, offset);
        if (lane + offset < num_warps) value = op(value, next);
    }
    value = __shfl_sync(0xffffffffu, value, 0);
    __syncthreads();
    return value;
}

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};

constexpr unsigned blocks_for(std::int64_t n, std::int64_t block) {
    return static_cast<unsigned>((n + block - 1) / block);
}

}  // namespace cuda
