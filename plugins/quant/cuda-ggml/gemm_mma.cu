// Tiles of 128 rows of x by 128 rows of W on mma.sync (m16n8k16), four stages of cp.async ahead.

#include "plugins/quant/cuda-ggml/gemm.hpp"

#include "plugins/cuda/launch.cuh"

namespace cuda_ggml {
namespace {

constexpr int kM = 128, kN = 128, kK = 32, kStages = 4;
constexpr int kThreads = 256;                  // 8 warps: 2 along m, 4 along n
constexpr int kWarpM = 64, kWarpN = 32;
constexpr int kRowBytes = kK * 2;              // of a tile: four 16-byte chunks
constexpr int kStageBytes = (kM + kN) * kRowBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
static_assert(kSharedBytes <= cuda::kMaxSharedBytes, "the stages lie in shared memory");

/// Chunks are exchanged within pairs of rows, so that the eight rows which ldmatrix reads at once lie in
/// different banks.
__device__ int swizzled(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row >> 1 & 3)) * 16);
}

__device__ void copy_async(unsigned to, const void* from, bool exists) {
    const int bytes = exists ? 16 : 0;  // the rest is filled with zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__device__ void load_matrix(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

template <Half kType>
__device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    if constexpr (kType == Half::f16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Rows [first, first + 128) of a [rows, k] matrix, columns [k0, k0 + 32), into a stage.
__device__ void fetch_tile(unsigned to, const std::uint16_t* from, std::int64_t stride, int first, int rows, int k0, int k) {
#pragma unroll
    for (int i = 0; i < kM * 4 / kThreads; ++i) {
        const int at = static_cast<int>(threadIdx.x) + i * kThreads, row = at / 4, chunk = at % 4;
        const int column = k0 + 8 * chunk;
        const bool exists = first + row < rows && column < k;
        copy_async(to + static_cast<unsigned>(swizzled(row, chunk)),
                   from + (exists ? (first + row) * stride + column : 0), exists);
    }
}

template <Half kType>
__global__ void __launch_bounds__(kThreads, 2) mma_kernel(const __grid_constant__ Gemm g) {
    extern __shared__ __align__(128) unsigned char stages[];
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int m0 = static_cast<int>(blockIdx.x) * kM, n0 = static_cast<int>(blockIdx.y) * kN;
    const std::int64_t batch = blockIdx.z;
    const std::uint16_t *x = g.x + batch * g.x_batch, *w = g.w + batch * g.w_batch;
    const auto base = static_cast<unsigned>(__cvta_generic_to_shared(stages));
    const int steps = (g.k + kK - 1) / kK;
    const auto fetch = [&](int step) {
        if (step < steps) {
            const unsigned to = base + static_cast<unsigned>(step % kStages * kStageBytes);
            fetch_tile(to, x, g.x_stride, m0, g.m, step * kK, g.k);
            fetch_tile(to + kM * kRowBytes, w, g.w_stride, n0, g.n, step * kK, g.k);
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int step = 0; step < kStages - 1; ++step) fetch(step);

    float sum[kWarpM / 16][kWarpN / 8][4] = {};
    const int warp_m = warp / 4 * kWarpM, warp_n = warp % 4 * kWarpN;
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
        __syncthreads();
        fetch(step + kStages - 1);  // into the stage that all have left
        const unsigned at_x = base + static_cast<unsigned>(step % kStages * kStageBytes), at_w = at_x + kM * kRowBytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned a[kWarpM / 16][4], b[kWarpN / 16][4];
#pragma unroll
            for (int i = 0; i < kWarpM / 16; ++i)
                load_matrix(a[i], at_x + static_cast<unsigned>(swizzled(warp_m + 16 * i + lane % 16, 2 * half + lane / 16)));
            // Rows of W are columns of the product: lanes 0-7 and 8-15 name the two k-chunks of the first
            // eight, 16-31 those of the next.
#pragma unroll
            for (int i = 0; i < kWarpN / 16; ++i)
                load_matrix(b[i], at_w + static_cast<unsigned>(swizzled(warp_n + 16 * i + lane / 16 * 8 + lane % 8,
                                                                        2 * half + lane / 8 % 2)));
#pragma unroll
            for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
                for (int j = 0; j < kWarpN / 8; ++j)
                    multiply<kType>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    asm volatile("cp.async.wait_all;");

    const float alpha = *g.alpha, beta = *g.beta;
    float* y = g.y + batch * g.y_batch;
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int row = m0 + warp_m + 16 * i + lane / 4 + part / 2 * 8;
                const int column = n0 + warp_n + 8 * j + lane % 4 * 2 + part % 2;
                if (row >= g.m || column >= g.n) continue;
                float& to = y[row * g.y_stride + column];
                to = beta != 0.0f ? alpha * sum[i][j][part] + to : alpha * sum[i][j][part];
            }
}

}  // namespace

cudaError_t launch_mma(const Gemm& g, const assay_stream* s) {
    const dim3 grid(cuda::blocks_for(g.m, kM), cuda::blocks_for(g.n, kN), static_cast<unsigned>(g.batch));
    if (g.type == Half::f16) return cuda::launch(mma_kernel<Half::f16>, grid, dim3(kThreads), kSharedBytes, s, true, g);
    return cuda::launch(mma_kernel<Half::bf16>, grid, dim3(kThreads), kSharedBytes, s, true, g);
}

}  // namespace cuda_ggml
