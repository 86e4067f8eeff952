// The pointwise ops: argument checks as the cpu device has them, and kernels. All are bound by the bytes
// they move or, with few rows, by the launch: statistics cost nothing, so they are kept in f64.

#include "plugins/cuda/glu.cuh"
#include "plugins/device/cuda/device.hpp"
#include "plugins/device/cuda/ops.hpp"
#include "plugins/device/cuda/rows.cuh"

#include <cmath>
#include <cstdint>

namespace cuda {
namespace {

using namespace views;

constexpr int kThreads = 256;
constexpr std::int64_t kMaxGridY = 65535;

// ---- norms -------------------------------------------------------------------------------------

/// Threads that share a row. Rows of a head are narrow and many, the residual stream's wide and few.
int row_threads(std::int64_t n) {
    return n <= 256 ? 32 : n <= 2048 ? 256 : 1024;
}

/// One row a group of threadIdx.x, several rows a block (threadIdx.y) where a warp is enough.
struct RowGroup {
    std::int64_t row;
    int thread, num_threads;
    __device__ RowGroup()
        : row{static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y},
          thread{static_cast<int>(threadIdx.x)},
          num_threads{static_cast<int>(blockDim.x)} {}
    /// Sum over the group, the same on each of its threads.
    __device__ double sum(double value) const {
        __shared__ double scratch[32];
        if (num_threads == 32) return warp_reduce(value, Sum{});
        return block_reduce(value, scratch, Sum{});
    }
};

dim3 group_block(std::int64_t n) {
    const int threads = row_threads(n);
    return dim3(static_cast<unsigned>(threads), threads == 32 ? 8u : 1u);
}
dim3 group_grid(std::int64_t rows, dim3 block) {
    return dim3(blocks_for(rows, block.y));
}

__global__ void __launch_bounds__(1024)
    rmsnorm_kernel(KernelRows<const float> x, KernelRows<float> residual, const float* weight, float eps,
                   KernelRows<float> out, std::int64_t rows, int n) {
    wait_for_inputs();
    let_next_start();
    const RowGroup group;
    if (group.row >= rows) return;
    const float* from = x[group.row];
    double squares = 0;
    if (residual.data != nullptr) {
        float* sum = residual[group.row];
        for (int i = group.thread; i < n; i += group.num_threads) {
            const float v = sum[i] + from[i];
            sum[i] = v;
            squares += static_cast<double>(v) * static_cast<double>(v);
        }
        from = sum;  // each thread reads back what it wrote itself
    } else {
        for (int i = group.thread; i < n; i += group.num_threads)
            squares += static_cast<double>(from[i]) * static_cast<double>(from[i]);
    }
    const double mean = group.sum(squares) / n;
    const float scale = static_cast<float>(1.0 / sqrt(mean + static_cast<double>(eps)));
    float* to = out[group.row];
    for (int i = group.thread; i < n; i += group.num_threads) {
        const float v = from[i] * scale;
        to[i] = weight != nullptr ? v * weight[i] : v;
    }
}

/// The same for rows that lie in registers: n a multiple of 4, everything aligned to 16 bytes. The weight
/// is no kernel's output, so it is read before the wait.
/// @tparam kVectors  of four elements a thread
template <int kVectors>
__global__ void __launch_bounds__(1024)
    rmsnorm_wide_kernel(KernelRows<const float> x, KernelRows<float> residual, const float* weight, float eps,
                        KernelRows<float> out, int n) {
    __shared__ double scratch[32];
    const int first = 4 * static_cast<int>(threadIdx.x), step = 4 * static_cast<int>(blockDim.x);
    float4 w[kVectors], v[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        const int i = first + j * step;
        w[j] = weight != nullptr && i < n ? *reinterpret_cast<const float4*>(weight + i) : make_float4(1, 1, 1, 1);
    }
    wait_for_inputs();
    let_next_start();
    const float* from = x[blockIdx.x];
    float* sum = residual.data != nullptr ? residual[blockIdx.x] : nullptr;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        const int i = first + j * step;
        v[j] = i < n ? *reinterpret_cast<const float4*>(from + i) : make_float4(0, 0, 0, 0);
        if (sum == nullptr || i >= n) continue;
        const float4 r = *reinterpret_cast<const float4*>(sum + i);
        v[j] = make_float4(r.x + v[j].x, r.y + v[j].y, r.z + v[j].z, r.w + v[j].w);
        *reinterpret_cast<float4*>(sum + i) = v[j];
    }
    // In f64 as in the kernel above: rows that differ in alignment alone give the same bits.
    double squares = 0;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        const double a = v[j].x, b = v[j].y, c = v[j].z, d = v[j].w;
        squares += (a * a + b * b) + (c * c + d * d);
    }
    const double mean = block_reduce(squares, scratch, Sum{}) / n;
    const float scale = static_cast<float>(1.0 / sqrt(mean + static_cast<double>(eps)));
    float* to = out[blockIdx.x];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        const int i = first + j * step;
        if (i < n)
            *reinterpret_cast<float4*>(to + i) = make_float4(v[j].x * scale * w[j].x, v[j].y * scale * w[j].y,
                                                             v[j].z * scale * w[j].z, v[j].w * scale * w[j].w);
    }
}

/// Every row begins at a multiple of 16 bytes.
bool has_aligned_rows(const assay_tensor& t) {
    if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0) return false;
    for (int d = 0; d + 1 < t.rank; ++d)
        if (t.shape[d] > 1 && t.stride[d] % 4 != 0) return false;
    return true;
}

assay_status rmsnorm(void*, const assay_tensor* x, const assay_tensor* residual,
                     const assay_tensor* weight, float eps, const assay_tensor* out,
                     const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const bool has_residual = !is_absent(residual), has_weight = !is_absent(weight);
    if (has_residual && !(is_f32_rows(residual) && same_shape(*x, *residual))) return ASSAY_INVALID;
    if (has_weight && !is_vector(weight, width(*x))) return ASSAY_INVALID;
    const std::int64_t rows = num_rows(*x), n = width(*x);
    if (n == 0 || rows == 0) return ASSAY_OK;
    const float* w = has_weight ? floats(weight) : nullptr;
    const bool is_aligned = n % 4 == 0 && has_aligned_rows(*x) && has_aligned_rows(*out) &&
                            (!has_residual || has_aligned_rows(*residual)) && reinterpret_cast<std::uintptr_t>(w) % 16 == 0;
    if (is_aligned && n > 512 && n <= 16384) {
        const auto threads = static_cast<unsigned>(n <= 4096 ? (n / 4 + 31) / 32 * 32 : 1024);
        const auto kernel = n <= 4096 ? rmsnorm_wide_kernel<1> : n <= 8192 ? rmsnorm_wide_kernel<2> : rmsnorm_wide_kernel<4>;
        return run(kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0, s, kernel_rows<const float>(*x),
                   has_residual ? kernel_rows<float>(*residual) : KernelRows<float>{}, w, eps, kernel_rows<float>(*out),
                   static_cast<int>(n));
    }
    const dim3 block = group_block(n);
    return run(rmsnorm_kernel, group_grid(rows, block), block, 0, s, kernel_rows<const float>(*x),
               has_residual ? kernel_rows<float>(*residual) : KernelRows<float>{},
               w, eps, kernel_rows<float>(*out), rows, static_cast<int>(n));
}

__global__ void __launch_bounds__(1024)
    layernorm_kernel(KernelRows<const float> x, const float* weight, const float* bias, float eps,
                     KernelRows<float> out, std::int64_t rows, int n) {
    wait_for_inputs();
    let_next_start();
    const RowGroup group;
    if (group.row >= rows) return;
    const float* from = x[group.row];
    double sum = 0;
    for (int i = group.thread; i < n; i += group.num_threads) sum += static_cast<double>(from[i]);
    const double mean = group.sum(sum) / n;
    double squares = 0;
    for (int i = group.thread; i < n; i += group.num_threads) {
        const double d = static_cast<double>(from[i]) - mean;
        squares += d * d;
    }
    const double scale = 1.0 / sqrt(group.sum(squares) / n + static_cast<double>(eps));
    float* to = out[group.row];
    for (int i = group.thread; i < n; i += group.num_threads) {
        double v = (static_cast<double>(from[i]) - mean) * scale;
        if (weight != nullptr) v *= static_cast<double>(weight[i]);
        if (bias != nullptr) v += static_cast<double>(bias[i]);
        to[i] = static_cast<float>(v);
    }
}

assay_status layernorm(void*, const assay_tensor* x, const assay_tensor* weight,
                       const assay_tensor* bias, float eps, const assay_tensor* out,
                       const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    if (!is_absent(weight) && !is_vector(weight, width(*x))) return ASSAY_INVALID;
    if (!is_absent(bias) && !is_vector(bias, width(*x))) return ASSAY_INVALID;
    const std::int64_t rows = num_rows(*x), n = width(*x);
    if (n == 0 || rows == 0) return ASSAY_OK;
    const dim3 block = group_block(n);
    return run(layernorm_kernel, group_grid(rows, block), block, 0, s, kernel_rows<const float>(*x),
               is_absent(weight) ? nullptr : floats(weight), is_absent(bias) ? nullptr : floats(bias),
               eps, kernel_rows<float>(*out), rows, static_cast<int>(n));
}

// ---- rope --------------------------------------------------------------------------------------

__global__ void rope_table_kernel(const std::int32_t* pos, const double* inv_freq, int half_dims,
                                  double mscale, KernelRows<float> table, std::int64_t total) {
    wait_for_inputs();
    let_next_start();
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= total) return;
    const std::int64_t t = at / half_dims;
    const int i = static_cast<int>(at % half_dims);
    double sine, cosine;
    sincos(static_cast<double>(pos[t]) * inv_freq[i], &sine, &cosine);
    table[2 * t][i] = static_cast<float>(mscale * cosine);
    table[2 * t + 1][i] = static_cast<float>(mscale * sine);
}

assay_status rope_table(void*, const std::int32_t* pos, std::int64_t num_tokens,
                        const double* inv_freq, std::int32_t half_dims, float mscale,
                        const assay_tensor* cos_sin, const assay_stream* s) {
    if (!is_f32_rows(cos_sin, 3) || num_tokens < 0 || half_dims < 1 ||
        cos_sin->shape[0] != num_tokens || cos_sin->shape[1] != 2 || cos_sin->shape[2] != half_dims)
        return ASSAY_INVALID;
    if (num_tokens == 0) return ASSAY_OK;
    if (pos == nullptr || inv_freq == nullptr) return ASSAY_INVALID;
    const std::int64_t total = num_tokens * half_dims;
    return run(rope_table_kernel, dim3(blocks_for(total, kThreads)), dim3(kThreads), 0, s, pos,
               inv_freq, static_cast<int>(half_dims), double{mscale}, kernel_rows<float>(*cos_sin),
               total);
}

/// A thread a pair of elements; what lies beyond the rotated dims is copied by twos.
__global__ void rope_kernel(KernelRows<const float> x, KernelRows<const float> table, int style,
                            KernelRows<float> out, std::int64_t rows, int heads, int head_dim,
                            int half_dims) {
    wait_for_inputs();
    let_next_start();
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* from = x[row];
    float* to = out[row];
    const std::uint32_t t = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(heads);
    const float *cosine = table[2 * t], *sine = table[2 * t + 1];
    for (int i = static_cast<int>(threadIdx.x); i < half_dims; i += static_cast<int>(blockDim.x)) {
        const int u = style == ASSAY_ROPE_NEOX ? i : 2 * i;
        const int v = style == ASSAY_ROPE_NEOX ? i + half_dims : 2 * i + 1;
        const float a = from[u], b = from[v], c = cosine[i], d = sine[i];
        to[u] = a * c - b * d;
        to[v] = a * d + b * c;
    }
    if (to == from) return;
    for (int i = 2 * half_dims + static_cast<int>(threadIdx.x); i < head_dim; i += static_cast<int>(blockDim.x))
        to[i] = from[i];
}

assay_status rope(void*, const assay_tensor* x, const assay_tensor* cos_sin, std::int32_t style,
                  const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(x, 3) || !is_f32_rows(out, 3) || !may_map(*x, *out) ||
        !is_f32_rows(cos_sin, 3))
        return ASSAY_INVALID;
    const std::int64_t tokens = x->shape[0], heads = x->shape[1], head_dim = x->shape[2];
    const std::int64_t half_dims = cos_sin->shape[2], rows = tokens * heads;
    if (cos_sin->shape[0] != tokens || cos_sin->shape[1] != 2 || half_dims < 1 ||
        2 * half_dims > head_dim || (style != ASSAY_ROPE_NORM && style != ASSAY_ROPE_NEOX))
        return ASSAY_INVALID;
    if (rows == 0) return ASSAY_OK;
    return run(rope_kernel, dim3(blocks_for(rows, 4)), dim3(64, 4), 0, s, kernel_rows<const float>(*x),
               kernel_rows<const float>(*cos_sin), static_cast<int>(style), kernel_rows<float>(*out),
               rows, static_cast<int>(heads), static_cast<int>(head_dim), static_cast<int>(half_dims));
}

// ---- element by element ------------------------------------------------------------------------

struct AddScaled {
    float factor;
    __device__ float operator()(float a, float b) const { return fmaf(factor, b, a); }
};
struct Scale {
    float factor;
    __device__ float operator()(float x, float) const { return x * factor; }
};
struct Softcap {
    float cap;
    __device__ float operator()(float x, float) const { return cap * tanhf(x / cap); }
};

/// out = f(a, b) for each element; b may be absent. Grid: columns in x, rows in y with a stride.
template <class F>
__global__ void map_kernel(KernelRows<const float> a, KernelRows<const float> b, KernelRows<float> out,
                           std::int64_t rows, int n, F f) {
    wait_for_inputs();
    let_next_start();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
        out[row][i] = f(a[row][i], b.data != nullptr ? b[row][i] : 0.0f);
}

template <class F>
assay_status map(const assay_tensor* a, const assay_tensor* b, const assay_tensor* out, F f,
                 const assay_stream* s) {
    if (!is_f32_rows(a) || !is_f32_rows(out) || !may_map(*a, *out)) return ASSAY_INVALID;
    if (b != nullptr && !(is_f32_rows(b) && may_map(*b, *out))) return ASSAY_INVALID;
    const std::int64_t rows = num_rows(*a), n = width(*a);
    if (rows == 0 || n == 0) return ASSAY_OK;
    const dim3 grid(blocks_for(n, kThreads), static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY));
    return run(map_kernel<F>, grid, dim3(kThreads), 0, s, kernel_rows<const float>(*a),
               b != nullptr ? kernel_rows<const float>(*b) : KernelRows<const float>{},
               kernel_rows<float>(*out), rows, static_cast<int>(n), f);
}

assay_status glu(void*, std::int32_t kind, float alpha, float limit, const assay_tensor* gate,
                 const assay_tensor* up, const assay_tensor* out, const assay_stream* s) {
    if (kind < ASSAY_GLU_NONE || kind > ASSAY_GLU_SILU_CLAMP || up == nullptr) return ASSAY_INVALID;
    return map(gate, up, out, Glu{kind, alpha, limit}, s);
}

assay_status add(void*, const assay_tensor* a, const assay_tensor* b, float factor,
                 const assay_tensor* out, const assay_stream* s) {
    if (b == nullptr) return ASSAY_INVALID;
    return map(a, b, out, AddScaled{factor}, s);
}

assay_status scale(void*, const assay_tensor* x, float factor, const assay_tensor* out,
                   const assay_stream* s) {
    return map(x, nullptr, out, Scale{factor}, s);
}

assay_status softcap(void*, const assay_tensor* x, float cap, const assay_tensor* out,
                     const assay_stream* s) {
    if (!(cap > 0)) return ASSAY_INVALID;
    return map(x, nullptr, out, Softcap{cap}, s);
}

/// The expert of a slot, or -1: the first whose range ends beyond it.
__device__ int expert_of(const std::int32_t* offset, int num_experts, std::int64_t slot) {
    int low = 0, high = num_experts;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (offset[middle + 1] > slot)
            high = middle;
        else
            low = middle + 1;
    }
    return low < num_experts && slot >= offset[0] ? low : -1;
}

__global__ void add_bias_kernel(KernelRows<float> x, KernelRows<const float> bias,
                                const std::int32_t* offset, int num_experts, std::int64_t rows, int n) {
    wait_for_inputs();
    let_next_start();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const int e = offset == nullptr ? 0 : expert_of(offset, num_experts, row);
        if (e >= 0) x[row][i] += bias[e][i];
    }
}

assay_status add_bias(void*, const assay_tensor* x, const assay_tensor* bias,
                      const std::int32_t* expert_offset, const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(bias, expert_offset != nullptr ? 2 : 1)) return ASSAY_INVALID;
    const std::int64_t rows = num_rows(*x), n = width(*x);
    if (width(*bias) != n || (expert_offset != nullptr && x->rank != 2)) return ASSAY_INVALID;
    if (rows == 0 || n == 0) return ASSAY_OK;
    const int experts = expert_offset != nullptr ? static_cast<int>(bias->shape[0]) : 1;
    const dim3 grid(blocks_for(n, kThreads), static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY));
    return run(add_bias_kernel, grid, dim3(kThreads), 0, s, kernel_rows<float>(*x),
               kernel_rows<const float>(*bias), expert_offset, experts, rows, static_cast<int>(n));
}

// ---- hadamard ----------------------------------------------------------------------------------

constexpr int kMaxHadamard = 16384;
static_assert(kMaxHadamard * sizeof(float) <= kMaxSharedBytes, "a row lies in shared memory");

__global__ void __launch_bounds__(512)
    hadamard_kernel(KernelRows<const float> x, KernelRows<float> out, int n, float factor) {
    extern __shared__ float values[];
    wait_for_inputs();
    let_next_start();
    const float* from = x[blockIdx.x];
    float* to = out[blockIdx.x];
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) values[i] = from[i];
    for (int h = 1; h < n; h *= 2) {
        __syncthreads();
        for (int p = static_cast<int>(threadIdx.x); p < n / 2; p += static_cast<int>(blockDim.x)) {
            const int low = p / h * 2 * h + p % h;
            const float a = values[low], b = values[low + h];
            values[low] = a + b;
            values[low + h] = a - b;
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
        to[i] = values[i] * factor;
}

assay_status hadamard(void*, const assay_tensor* x, const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const std::int64_t rows = num_rows(*x), n = width(*x);
    if (n < 1 || (n & (n - 1)) != 0) return ASSAY_INVALID;
    if (n > kMaxHadamard) return ASSAY_UNSUPPORTED;
    if (rows == 0) return ASSAY_OK;
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
    return run(hadamard_kernel, dim3(static_cast<unsigned>(rows)), dim3(n < 1024 ? 128 : 512),
               static_cast<std::size_t>(n) * sizeof(float), s, kernel_rows<const float>(*x),
               kernel_rows<float>(*out), static_cast<int>(n), factor);
}

// ---- the table ---------------------------------------------------------------------------------

assay_status supports(void*, std::int32_t op, std::int32_t dtype, assay_error* why) {
    if (op < ASSAY_OP_COPY || op > ASSAY_OP_SAMPLE)
        return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d is not one of this ABI", op);
    const bool fits = op == ASSAY_OP_COPY          ? is_float(dtype)
                      : op == ASSAY_OP_GATHER_ROWS ? is_dtype(dtype)
                                                   : dtype == ASSAY_F32;
    if (fits) return ASSAY_OK;
    return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d: activations of %s, the cuda device has %s", op,
                     sdk::dtype_name(dtype), op == ASSAY_OP_COPY ? "f32, f16, bf16" : "f32");
}

}  // namespace

const assay_ops device_ops = {
    .size = sizeof(assay_ops),
    .supports = supports,
    .copy = copy_op,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .rope_table = rope_table,
    .rope = rope,
    .glu = glu,
    .add = add,
    .scale = scale,
    .add_bias = add_bias,
    .hadamard = hadamard,
    .softcap = softcap,
    .router = router,
    .expert_sort = expert_sort,
    .expert_combine = expert_combine,
    .gather_rows = gather_rows,
    .logits_edit = logits_edit,
    .logits_mask = logits_mask,
    .logprobs = logprobs,
    .sample = sample,
};

}  // namespace cuda
