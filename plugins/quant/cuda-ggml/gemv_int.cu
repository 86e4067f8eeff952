// Integer products of quantized weights with x in 8 bits: four multiply-adds an instruction, exact within
// half a group of 32, f32 across.

#include "plugins/quant/cuda-ggml/gemv.cuh"
#include "plugins/quant/cuda-ggml/quantize.cuh"

#include <cuda_fp16.h>

namespace cuda_ggml {
namespace {

__device__ int dot16(const int (&a)[4], int4 b) {
    return __dp4a(a[3], b.w, __dp4a(a[2], b.z, __dp4a(a[1], b.y, __dp4a(a[0], b.x, 0))));
}
__device__ float half_of(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ int4 x16(const std::uint8_t* row, int at) {
    return *reinterpret_cast<const int4*>(row + at);
}

constexpr int planes_of(FormatId id) {
    return id == FormatId::q6_k ? 4 : id == FormatId::q8_0 ? 2 : 1;
}

/// Where a row begins in each plane.
template <FormatId kId>
struct RowPlanes {
    const std::uint8_t* at[planes_of(kId)];
    __device__ RowPlanes(const WeightView& w, std::int64_t row) {
#pragma unroll
        for (int p = 0; p < planes_of(kId); ++p) at[p] = w.plane[p] + row * w.row_bytes[p];
    }
};

/// Unsigned bytes by signed ones.
__device__ int dot_us(unsigned a, int b, int c) {
    int d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
/// Sixteen nibbles-or-more in four words by sixteen of x.
__device__ int dot_us(const unsigned (&a)[4], int4 b) {
    return dot_us(a[3], b.w, dot_us(a[2], b.z, dot_us(a[1], b.y, dot_us(a[0], b.x, 0))));
}

/// What a lane takes of a row at a time: 32 bytes of quants and what belongs to them. load() only loads;
/// the constructor unpacks; dot() meets one row of x.
template <FormatId kId>
struct Unit;

/// One group.
template <>
struct Unit<FormatId::q8_0> {
    static constexpr int kCols = 32;
    struct Raw {
        uint4 q[2];
        unsigned d;
    };
    __device__ static Raw load(const RowPlanes<FormatId::q8_0>& row, int u) {
        const std::uint8_t* at = row.at[0] + 32 * u;
        return {{load16(at), load16(at + 16)}, __ldg(reinterpret_cast<const unsigned short*>(row.at[1]) + u)};
    }
    int q[2][4];
    float d;
    __device__ Unit(const Raw& r, int) : d{half_of(r.d)} {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            q[h][0] = static_cast<int>(r.q[h].x), q[h][1] = static_cast<int>(r.q[h].y);
            q[h][2] = static_cast<int>(r.q[h].z), q[h][3] = static_cast<int>(r.q[h].w);
        }
    }
    __device__ float dot(const std::uint8_t* x, int k, int u) const {
        const int sum = dot16(q[0], x16(x, 32 * u)) + dot16(q[1], x16(x, 32 * u + 16));
        return d * meta_of(x, k)[u].scale * static_cast<float>(sum);
    }
};

/// An even group of 32 (low nibbles) and the next (high nibbles, left where they are: sixteen times as
/// large, which the scale takes back).
struct KUnit {
    static constexpr int kCols = 64;
    unsigned low[2][4], high[2][4];
    int scale[2], min[2];
    float d, dmin;

    /// @param head  the first 16 bytes of a q4_k or q5_k block
    __device__ void set_scales(uint4 head, int u) {
        const int pair = u % 4, shift = 16 * (pair & 1);
        const unsigned a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
        const unsigned s = pair < 2 ? a & 0x3f3fu : (c & 0x0f0fu) | ((a >> 2) & 0x3030u);
        const unsigned m = pair < 2 ? b & 0x3f3fu : ((c >> 4) & 0x0f0fu) | ((b >> 2) & 0x3030u);
        scale[0] = static_cast<int>(s & 255u);
        scale[1] = static_cast<int>(s >> 8 & 255u);
        min[0] = static_cast<int>(m & 255u);
        min[1] = static_cast<int>(m >> 8 & 255u);
        d = half_of(head.x & 0xffffu);
        dmin = half_of(head.x >> 16);
    }
    /// @param part_of_high  1/16 where the high nibbles were not shifted down
    __device__ float dot_with(const std::uint8_t* x, int k, int u, float part_of_high) const {
        const std::uint8_t* at = x + 64 * u;
        // The metas of both groups lie side by side.
        const int4 metas = *reinterpret_cast<const int4*>(meta_of(x, k) + 2 * u);
        const int i0 = dot_us(low[0], x16(at, 0)) + dot_us(low[1], x16(at, 16));
        const int i1 = dot_us(high[0], x16(at, 32)) + dot_us(high[1], x16(at, 48));
        const int sum0 = (metas.y >> 16) + static_cast<std::int16_t>(metas.y);
        const int sum1 = (metas.w >> 16) + static_cast<std::int16_t>(metas.w);
        const float part0 = d * static_cast<float>(scale[0] * i0) - dmin * static_cast<float>(min[0] * sum0);
        const float part1 =
            d * part_of_high * static_cast<float>(scale[1] * i1) - dmin * static_cast<float>(min[1] * sum1);
        return __int_as_float(metas.x) * part0 + __int_as_float(metas.z) * part1;
    }
};

template <>
struct Unit<FormatId::q4_k> : KUnit {
    struct Raw {
        uint4 q[2], head;
    };
    __device__ static Raw load(const RowPlanes<FormatId::q4_k>& row, int u) {
        const std::uint8_t *block = row.at[0] + u / 4 * 144, *at = block + 16 + u % 4 * 32;
        return {{load16(at), load16(at + 16)}, __ldg(reinterpret_cast<const uint4*>(block))};
    }
    __device__ Unit(const Raw& r, int u) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const unsigned q[4] = {r.q[h].x, r.q[h].y, r.q[h].z, r.q[h].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                low[h][i] = q[i] & 0x0f0f0f0fu;
                high[h][i] = q[i] & 0xf0f0f0f0u;
            }
        }
        set_scales(r.head, u);
    }
    __device__ float dot(const std::uint8_t* x, int k, int u) const { return dot_with(x, k, u, 0.0625f); }
};

template <>
struct Unit<FormatId::q5_k> : KUnit {
    struct Raw {
        uint4 q[2], fifth[2], head;
    };
    __device__ static Raw load(const RowPlanes<FormatId::q5_k>& row, int u) {
        const std::uint8_t *block = row.at[0] + u / 4 * 176, *at = block + 48 + u % 4 * 32;
        return {{load16(at), load16(at + 16)},
                {__ldg(reinterpret_cast<const uint4*>(block + 16)), __ldg(reinterpret_cast<const uint4*>(block + 32))},
                __ldg(reinterpret_cast<const uint4*>(block))};
    }
    __device__ Unit(const Raw& r, int u) {
        const int bit = u % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned q[4] = {r.q[half].x, r.q[half].y, r.q[half].z, r.q[half].w};
            const unsigned h[4] = {r.fifth[half].x, r.fifth[half].y, r.fifth[half].z, r.fifth[half].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                low[half][i] = (q[i] & 0x0f0f0f0fu) | (h[i] >> bit & 0x01010101u) << 4;
                high[half][i] = (q[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (bit + 1) & 0x01010101u) << 4;
            }
        }
        set_scales(r.head, u);
    }
    __device__ float dot(const std::uint8_t* x, int k, int u) const { return dot_with(x, k, u, 1.0f); }
};

/// u % 4 = 2 * (half of the block) + (odd group): low nibbles are of one group of 32, high ones of the next
/// but one. Scales are one a half group.
template <>
struct Unit<FormatId::q6_k> {
    static constexpr int kCols = 64;
    struct Raw {
        uint4 q[2], high[2];
        unsigned scales[2], d;
    };
    __device__ static Raw load(const RowPlanes<FormatId::q6_k>& row, int u) {
        const int block = u / 4, half = u % 4 / 2;
        const std::uint8_t *low = row.at[0] + 32 * u, *high = row.at[1] + block * 64 + 32 * half;
        const auto* scales = reinterpret_cast<const unsigned short*>(row.at[2] + block * 16 + 8 * half + 2 * (u % 2));
        return {{load16(low), load16(low + 16)},
                {__ldg(reinterpret_cast<const uint4*>(high)), __ldg(reinterpret_cast<const uint4*>(high + 16))},
                {__ldg(scales), __ldg(scales + 2)},
                __ldg(reinterpret_cast<const unsigned short*>(row.at[3]) + block)};
    }

    unsigned low[2][4], high[2][4];
    unsigned scales[2];
    float d;
    __device__ Unit(const Raw& r, int u) : scales{r.scales[0], r.scales[1]}, d{half_of(r.d)} {
        const int shift = u % 2 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned q[4] = {r.q[half].x, r.q[half].y, r.q[half].z, r.q[half].w};
            const unsigned h[4] = {r.high[half].x, r.high[half].y, r.high[half].z, r.high[half].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                low[half][i] = (q[i] & 0x0f0f0f0fu) | (h[i] >> shift & 0x03030303u) << 4;
                high[half][i] = (q[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (shift + 4) & 0x03030303u) << 4;
            }
        }
    }
    __device__ static int scale_of(unsigned pair, int half) { return static_cast<signed char>(pair >> (8 * half)); }
    __device__ float dot(const std::uint8_t* x, int k, int u) const {
        const int group = u / 4 * 8 + u % 4 / 2 * 4 + u % 2;
        const GroupMeta m0 = meta_of(x, k)[group], m1 = meta_of(x, k)[group + 2];
        const std::uint8_t *x0 = x + group * kGroup, *x1 = x0 + 2 * kGroup;
        int i0 = 0, i1 = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            i0 += scale_of(scales[0], half) * (dot_us(low[half], x16(x0, 16 * half)) - 32 * m0.sum[half]);
            i1 += scale_of(scales[1], half) * (dot_us(high[half], x16(x1, 16 * half)) - 32 * m1.sum[half]);
        }
        return d * (m0.scale * static_cast<float>(i0) + m1.scale * static_cast<float>(i1));
    }
};

// ---- the kernel ----------------------------------------------------------------------------------

constexpr bool is_staged(int num_x) {  // the block quantizes x itself, into shared memory
    return num_x <= 2;
}
constexpr int threads_of(int num_x) {
    return is_staged(num_x) ? 512 : 256;
}

/// @tparam kX  rows of quantized x that meet each weight: slots times planes
template <FormatId kId, int kX>
__global__ void __launch_bounds__(threads_of(kX), 2)
    int_gemv_kernel(const __grid_constant__ GemvArgs a) {
    extern __shared__ __align__(16) std::uint8_t staged[];
    constexpr int kThreads = threads_of(kX), kWarps = kThreads / 32;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const std::int32_t first_pair = static_cast<std::int32_t>(blockIdx.x) * kWarps + thread / 32;
    prefetch_first(a, first_pair, lane);
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const Segment segment = segment_of(a);
    if (segment.count <= 0) return;
    const std::int64_t row_bytes = quantized_bytes(a.k);

    const std::uint8_t* x[kX];
    unsigned bad_slots = 0;
    if constexpr (is_staged(kX)) {
        for (int t = 0; t * a.planes < kX; ++t) {
            const std::int32_t row = x_row_of(a, segment.first + min(t, segment.count - 1));
            quantize_row(row < 0 ? nullptr : x_of(a, row, segment.expert), a.k, a.planes,
                         staged + t * a.planes * row_bytes, thread, kThreads);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kX; ++i) x[i] = staged + i * row_bytes;
    } else {
#pragma unroll
        for (int i = 0; i < kX; ++i) {
            const int t = i / a.planes;
            const std::int32_t slot = segment.first + min(t, segment.count - 1);
            std::int32_t row = x_row_of(a, slot);
            if (row < 0) bad_slots |= 1u << t;
            row = a.is_quantized_by_slot ? slot : max(row, 0);
            const std::int64_t at = a.op == ASSAY_Q_BATCHED ? static_cast<std::int64_t>(row) * a.num_experts + segment.expert : row;
            x[i] = a.quantized + (at * a.planes + i % a.planes) * row_bytes;
        }
    }

    const bool is_glu = a.glu.kind != ASSAY_GLU_NONE;
    const std::int32_t pairs = num_pairs(a), num_units = a.k / Unit<kId>::kCols;
    for (std::int32_t pair = first_pair; pair < pairs; pair += static_cast<std::int32_t>(gridDim.x) * kWarps) {
        const RowPair rows = pair_of(a, pair);
        const GemvOutput &out0 = a.out[rows.i], &out1 = a.out[is_glu ? 1 : rows.i];
        const std::int64_t base0 = static_cast<std::int64_t>(segment.expert) * out0.rows;
        const std::int64_t base1 = static_cast<std::int64_t>(segment.expert) * out1.rows;
        const RowPlanes<kId> row0{out0.w, base0 + rows.row[0]};
        const RowPlanes<kId> row1{out1.w, base1 + (rows.row[1] >= 0 ? rows.row[1] : rows.row[0])};
        const bool has_second = rows.row[1] >= 0;
        float sum[kX][2] = {};
#pragma unroll 1
        for (std::int32_t u = lane; u < num_units; u += 32) {
            const auto raw0 = Unit<kId>::load(row0, u);
            typename Unit<kId>::Raw raw1{};
            if (has_second) raw1 = Unit<kId>::load(row1, u);
            const Unit<kId> w0{raw0, u};
#pragma unroll
            for (int i = 0; i < kX; ++i) sum[i][0] += w0.dot(x[i], a.k, u);
            if (!has_second) continue;
            const Unit<kId> w1{raw1, u};
#pragma unroll
            for (int i = 0; i < kX; ++i) sum[i][1] += w1.dot(x[i], a.k, u);
        }
        float mine[2] = {0, 0};  // of the slot that this lane writes
#pragma unroll
        for (int i = 0; i < kX; ++i) {
            const int t = a.planes == 2 ? i / 2 : i;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float all = cuda::warp_reduce(sum[i][r], cuda::Sum{});
                if (lane == t) mine[r] += all;
            }
        }
        if (lane >= segment.count) continue;
        if ((bad_slots >> lane & 1u) != 0) mine[0] = mine[1] = __uint_as_float(0x7fffffffu);
        write_pair(a, rows, segment, segment.first + lane, mine[0], mine[1]);
    }
}

template <FormatId kId, int kX>
cudaError_t launch_as(GemvArgs a, const assay_stream* s) {
    constexpr int kThreads = threads_of(kX);
    // Fewer pairs than there are warps: rows one by one give each of them something to wait for.
    a.is_single = a.glu.kind == ASSAY_GLU_NONE && a.op == ASSAY_Q_MATMUL && kX <= 2 &&
                  num_pairs(a) < s->device->num_units * 2 * (kThreads / 32);
    const dim3 grid = gemv_grid(a, s->device->num_units, kThreads / 32, 2);
    const std::size_t shared = is_staged(kX) ? kX * static_cast<std::size_t>(quantized_bytes(a.k)) : 0;
    return cuda::launch(int_gemv_kernel<kId, kX>, grid, dim3(kThreads), shared, s, true, a);
}

template <FormatId kId>
cudaError_t launch_format(const GemvArgs& a, const assay_stream* s) {
    switch (a.tile * a.planes) {
        case 1:
            return launch_as<kId, 1>(a, s);
        case 2:
            return launch_as<kId, 2>(a, s);
        case kMaxIntegerRows:
            return launch_as<kId, kMaxIntegerRows>(a, s);
        default:
            return cudaErrorInvalidValue;
    }
}

__global__ void quantize_kernel(const __grid_constant__ GemvArgs a, std::uint8_t* out) {
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const auto at = static_cast<std::int32_t>(blockIdx.x);  // row, head
    std::int32_t row = a.op == ASSAY_Q_BATCHED ? at / a.num_experts : at;
    if (a.is_quantized_by_slot) row = x_row_of(a, row);
    const float* x = row < 0 ? nullptr : x_of(a, row, at % a.num_experts);
    quantize_row(x, a.k, a.planes, out + static_cast<std::int64_t>(at) * a.planes * quantized_bytes(a.k),
                 static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

}  // namespace

bool has_integer_kernel(const WeightView& w) {
    switch (w.id) {
        case FormatId::q4_k:
        case FormatId::q5_k:
            return !w.is_planar;
        case FormatId::q6_k:
        case FormatId::q8_0:
            return w.is_planar;
        default:
            return false;
    }
}

cudaError_t launch_quantize(const GemvArgs& a, std::uint8_t* out, const assay_stream* s) {
    const std::int32_t rows = a.is_quantized_by_slot ? a.num_slots : a.num_x_rows;
    const std::int32_t heads = a.op == ASSAY_Q_BATCHED ? a.num_experts : 1;
    return cuda::launch(quantize_kernel, dim3(static_cast<unsigned>(rows * heads)), dim3(256), 0, s, true, a, out);
}

cudaError_t launch_integer(const GemvArgs& a, const assay_stream* s) {
    switch (a.out[0].w.id) {
        case FormatId::q4_k:
            return launch_format<FormatId::q4_k>(a, s);
        case FormatId::q5_k:
            return launch_format<FormatId::q5_k>(a, s);
        case FormatId::q6_k:
            return launch_format<FormatId::q6_k>(a, s);
        case FormatId::q8_0:
            return launch_format<FormatId::q8_0>(a, s);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace cuda_ggml
