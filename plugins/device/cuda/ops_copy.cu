// Copies, conversions and the gathering of rows.

#include "plugins/device/cuda/ops.hpp"
#include "plugins/device/cuda/rows.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cuda {

using namespace views;

bool is_float(std::int32_t dtype) {
    return dtype == ASSAY_F32 || dtype == ASSAY_F16 || dtype == ASSAY_BF16;
}

bool is_dtype(std::int32_t dtype) {
    return dtype > ASSAY_DTYPE_NONE && dtype <= ASSAY_F64;
}

namespace {

constexpr int kThreads = 256;

/// Any strides, the innermost included.
struct Strided {
    std::int64_t stride[ASSAY_MAX_RANK];
    __device__ std::int64_t at(const std::int64_t* shape, int rank, std::int64_t element) const {
        std::int64_t offset = 0;
        for (int d = rank - 1; d > 0; --d) {
            offset += element % shape[d] * stride[d];
            element /= shape[d];
        }
        return offset + element * stride[0];
    }
};
struct Shape {
    std::int64_t dims[ASSAY_MAX_RANK];
    int rank;
};

__device__ float widen(float x) {
    return x;
}
__device__ float widen(__half x) {
    return __half2float(x);
}
__device__ float widen(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ void narrow(float x, float& out) {
    out = x;
}
__device__ void narrow(float x, __half& out) {
    out = __float2half_rn(x);
}
__device__ void narrow(float x, __nv_bfloat16& out) {
    out = __float2bfloat16_rn(x);
}
/// The same type: bits are copied, whatever they mean.
template <class T>
struct Same {
    __device__ static void move(const T& from, T& to) { to = from; }
};
template <class From, class To>
struct Converted {
    __device__ static void move(const From& from, To& to) { narrow(widen(from), to); }
};

template <class From, class To, class Move>
__global__ void copy_kernel(const From* x, Strided from, To* out, Strided to, Shape shape,
                            std::int64_t total) {
    wait_for_inputs();
    let_next_start();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step)
        Move::move(x[from.at(shape.dims, shape.rank, i)], out[to.at(shape.dims, shape.rank, i)]);
}

template <class From, class To, class Move>
assay_status copy_as(const assay_tensor& x, const assay_tensor& out, const assay_stream* s) {
    Strided from{}, to{};
    Shape shape{};
    shape.rank = x.rank;
    std::int64_t total = 1;
    for (int d = 0; d < x.rank; ++d) {
        from.stride[d] = x.stride[d];
        to.stride[d] = out.stride[d];
        shape.dims[d] = x.shape[d];
        total *= x.shape[d];
    }
    if (total == 0) return ASSAY_OK;
    const std::int64_t blocks = (total + kThreads - 1) / kThreads;
    return run(copy_kernel<From, To, Move>, dim3(static_cast<unsigned>(blocks < 65536 ? blocks : 65536)),
               dim3(kThreads), 0, s, static_cast<const From*>(x.data), from, static_cast<To*>(out.data),
               to, shape, total);
}

template <class From>
assay_status convert_from(const assay_tensor& x, const assay_tensor& out, const assay_stream* s) {
    switch (out.dtype) {
        case ASSAY_F16:
            return copy_as<From, __half, Converted<From, __half>>(x, out, s);
        case ASSAY_BF16:
            return copy_as<From, __nv_bfloat16, Converted<From, __nv_bfloat16>>(x, out, s);
        default:
            return copy_as<From, float, Converted<From, float>>(x, out, s);
    }
}

/// Rows of whole bytes; a warp a row.
__global__ void gather_kernel(const char* x, std::int64_t x_stride, std::int64_t num_x,
                              const std::int32_t* ids, char* out, std::int64_t out_stride,
                              std::int64_t bytes, std::int64_t rows) {
    wait_for_inputs();
    let_next_start();
    const std::int64_t row = blockIdx.x;
    const std::int32_t id = ids[row];
    const bool exists = id >= 0 && id < num_x;
    const char* from = x + (exists ? id * x_stride : 0);
    char* to = out + row * out_stride;
    const auto all = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) |
                     static_cast<std::uintptr_t>(bytes);
    const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
    // All ones is NaN in every float format.
    if (all % 16 == 0) {
        const uint4 ones = make_uint4(~0u, ~0u, ~0u, ~0u);
        for (std::int64_t i = thread; i < bytes / 16; i += step)
            reinterpret_cast<uint4*>(to)[i] = exists ? reinterpret_cast<const uint4*>(from)[i] : ones;
    } else {
        for (std::int64_t i = thread; i < bytes; i += step) to[i] = exists ? from[i] : static_cast<char>(0xff);
    }
}

}  // namespace

assay_status copy_op(void*, const assay_tensor* x, const assay_tensor* out, const assay_stream* s) {
    if (!is_view(x) || !is_view(out) || !is_dtype(x->dtype) || !is_dtype(out->dtype) ||
        !same_shape(*x, *out))
        return ASSAY_INVALID;
    if (x->dtype == out->dtype) {
        switch (sdk::dtype_bytes(x->dtype)) {
            case 1:
                return copy_as<std::uint8_t, std::uint8_t, Same<std::uint8_t>>(*x, *out, s);
            case 2:
                return copy_as<std::uint16_t, std::uint16_t, Same<std::uint16_t>>(*x, *out, s);
            case 4:
                return copy_as<std::uint32_t, std::uint32_t, Same<std::uint32_t>>(*x, *out, s);
            default:
                return copy_as<std::uint64_t, std::uint64_t, Same<std::uint64_t>>(*x, *out, s);
        }
    }
    if (!is_float(x->dtype) || !is_float(out->dtype)) return ASSAY_UNSUPPORTED;
    switch (x->dtype) {
        case ASSAY_F16:
            return convert_from<__half>(*x, *out, s);
        case ASSAY_BF16:
            return convert_from<__nv_bfloat16>(*x, *out, s);
        default:
            return convert_from<float>(*x, *out, s);
    }
}

assay_status gather_rows(void*, const assay_tensor* x, const std::int32_t* ids,
                         const assay_tensor* out, const assay_stream* s) {
    if (!is_view(x, 2) || !is_view(out, 2) || !is_dtype(x->dtype) || x->dtype != out->dtype ||
        !has_dense_rows(*x) || !has_dense_rows(*out) || x->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t rows = out->shape[0];
    if (rows == 0 || x->shape[1] == 0) return ASSAY_OK;
    if (ids == nullptr) return ASSAY_INVALID;
    const std::int64_t element = sdk::dtype_bytes(x->dtype), bytes = x->shape[1] * element;
    return run(gather_kernel, dim3(static_cast<unsigned>(rows)), dim3(bytes <= 4096 ? 128 : 512), 0, s,
               static_cast<const char*>(x->data), x->stride[0] * element, x->shape[0], ids,
               static_cast<char*>(out->data), out->stride[0] * element, bytes, rows);
}

}  // namespace cuda
