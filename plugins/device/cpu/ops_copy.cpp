// Copies, conversions and the gathering of rows.

#include "ops.hpp"
#include "parallel.hpp"

#include <cstring>

namespace cpu {

bool is_float(std::int32_t dtype) {
    return dtype == ASSAY_F32 || dtype == ASSAY_F16 || dtype == ASSAY_BF16;
}

bool is_dtype(std::int32_t dtype) {
    return dtype > ASSAY_DTYPE_NONE && dtype <= ASSAY_F64;
}

namespace {

void widen(const RowKernels& k, std::int32_t dtype, const void* x, float* out, std::int64_t n) {
    switch (dtype) {
        case ASSAY_F16:
            return k.f16_to_f32(static_cast<const std::uint16_t*>(x), out, n);
        case ASSAY_BF16:
            return k.bf16_to_f32(static_cast<const std::uint16_t*>(x), out, n);
        default:
            std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
    }
}

void narrow(const RowKernels& k, std::int32_t dtype, const float* x, void* out, std::int64_t n) {
    switch (dtype) {
        case ASSAY_F16:
            return k.f32_to_f16(x, static_cast<std::uint16_t*>(out), n);
        case ASSAY_BF16:
            return k.f32_to_bf16(x, static_cast<std::uint16_t*>(out), n);
        default:
            std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
    }
}

/// n elements, each `x_step` and `out_step` elements after the one before.
void convert(const RowKernels& k, std::int32_t x_dtype, const std::byte* x, std::int64_t x_step,
             std::int32_t out_dtype, std::byte* out, std::int64_t out_step, std::int64_t n) {
    const std::int64_t x_bytes = sdk::dtype_bytes(x_dtype), out_bytes = sdk::dtype_bytes(out_dtype);
    if (x_step != 1 || out_step != 1) {
        for (std::int64_t i = 0; i < n; ++i)
            convert(k, x_dtype, x + i * x_step * x_bytes, 1, out_dtype,
                    out + i * out_step * out_bytes, 1, 1);
    } else if (x_dtype == out_dtype) {
        if (x != out) std::memcpy(out, x, static_cast<std::size_t>(n * x_bytes));
    } else {
        float wide[256];
        for (std::int64_t i = 0; i < n; i += 256) {
            const std::int64_t count = std::min<std::int64_t>(256, n - i);
            widen(k, x_dtype, x + i * x_bytes, wide, count);
            narrow(k, out_dtype, wide, out + i * out_bytes, count);
        }
    }
}

/// First byte of row `row` of a tensor of any dtype.
std::byte* row_bytes(const assay_tensor& t, std::int64_t row) {
    assay_tensor bytes = t;
    const std::int64_t element = sdk::dtype_bytes(t.dtype);
    for (int d = 0; d < t.rank; ++d) bytes.stride[d] *= element;
    return Rows<std::byte>{bytes}[row];
}

}  // namespace

assay_status copy(void* self, const assay_tensor* x, const assay_tensor* out,
                  const assay_stream* s) {
    if (!is_view(x) || !is_view(out) || !is_dtype(x->dtype) || !is_dtype(out->dtype) ||
        !same_shape(*x, *out))
        return ASSAY_INVALID;
    if (x->dtype != out->dtype && !(is_float(x->dtype) && is_float(out->dtype)))
        return ASSAY_UNSUPPORTED;
    const Rows<std::byte> rows{*x};
    const int last = x->rank - 1;
    const std::int64_t x_step = x->shape[last] > 1 ? x->stride[last] : 1;
    const std::int64_t out_step = x->shape[last] > 1 ? out->stride[last] : 1;
    return for_pieces(
        s, rows.count(), rows.width(), 1,
        [&](std::int64_t row, std::int64_t first, std::int64_t count) {
            convert(kernels(self), x->dtype,
                    row_bytes(*x, row) + first * x_step * sdk::dtype_bytes(x->dtype), x_step,
                    out->dtype,
                    row_bytes(*out, row) + first * out_step * sdk::dtype_bytes(out->dtype),
                    out_step, count);
        });
}

assay_status gather_rows(void*, const assay_tensor* x, const std::int32_t* ids,
                         const assay_tensor* out, const assay_stream* s) {
    if (!is_view(x, 2) || !is_view(out, 2) || !is_dtype(x->dtype) || x->dtype != out->dtype ||
        !has_dense_rows(*x) || !has_dense_rows(*out) || x->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t num_rows = out->shape[0], num_x = x->shape[0];
    if (num_rows == 0) return ASSAY_OK;
    if (ids == nullptr) return ASSAY_INVALID;
    const std::int64_t bytes = x->shape[1] * sdk::dtype_bytes(x->dtype);
    return for_rows(s, num_rows, x->shape[1], [&](std::int64_t i) {
        std::byte* to = row_bytes(*out, i);
        if (ids[i] >= 0 && ids[i] < num_x)
            std::memcpy(to, row_bytes(*x, ids[i]), static_cast<std::size_t>(bytes));
        else  // all ones is NaN in every float format
            std::memset(to, 0xff, static_cast<std::size_t>(bytes));
    });
}

}  // namespace cpu
