#pragma once

// Instructions of the tensor cores and of the asynchronous copies, each under its own name, for
// every target from compute capability 8.0 on.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attention::gpu {

__device__ inline std::uint32_t shared_address(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// cp.async: 16 bytes from global to shared memory; zeros instead when not `is_there`.
__device__ inline void copy_async(std::uint32_t to, const void* from, bool is_there) {
    const int bytes = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most N of this thread's groups are under way.
template <int N>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// ldmatrix.x4: four 8 x 8 matrices of 16-bit entries; lane l gives the address of row l % 8 of
/// matrix l / 8 and receives entries (l / 4, 2 (l % 4)) and the next of each.
__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}
/// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/// mma.m16n8k16: c += a b, products of 16-bit numbers summed in f32. Lane l holds of c the entries
/// (l / 4, 2 (l % 4) + {0, 1}) and (l / 4 + 8, the same).
template <class T>
__device__ inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
    if constexpr (sizeof(T) == 2 && __is_same(T, __half))
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                     "{%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                     "{%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// mma.m16n8k8 of tf32 (the upper 19 bits of an f32), summed in f32.
__device__ inline void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                     std::uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// ex2.approx: 2^x with a relative error of at most 2^-22; 0 for -inf.
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Two neighbours in one register, rounded to nearest.
template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
    if constexpr (__is_same(T, __half)) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const std::uint32_t*>(&pair);
    }
}
template <class T>
__device__ inline T narrow(float x) {
    if constexpr (__is_same(T, __half))
        return __float2half_rn(x);
    else if constexpr (__is_same(T, __nv_bfloat16))
        return __float2bfloat16_rn(x);
    else
        return x;
}

/// Byte offset of 16-byte piece `chunk` of a row in shared memory. Pieces change places with the
/// row, so that eight rows of one column lie in all 32 banks; rows hold a multiple of 8 pieces.
template <int kRowChunks>
__device__ inline std::uint32_t swizzled(int row, int chunk) {
    static_assert(kRowChunks % 8 == 0);
    return static_cast<std::uint32_t>((row * kRowChunks + (chunk ^ (row & 7))) * 16);
}

}  // namespace attention::gpu
