// Grouped-query attention for many queries on Hopper's warpgroup instructions. Bound by the tensor
// cores: 2 (D + Dv) operations per query head and pair, 786 TFLOP/s measured for bf16 on an H200.
//
// Two warpgroups have 64 rows each, a third brings tiles of 128 keys and values, kStages deep: by the
// bulk tensor copy engine in boxes that lie within a page, the end of a sequence by cp.async. A warpgroup has the product with the next keys and the sum over the
// last values under way while it turns scores into weights.

#include "../cuda-common/rows.cuh"
#include "../cuda-common/wgmma.cuh"
#include "gqa.hpp"

#include <cuda.h>

namespace attention::gpu {
namespace {

constexpr int kKeys = 128;  // of a tile
constexpr int kStages = 2;
constexpr int kMapRows = 1 << 30;  // extent of the tensor maps, in slots
constexpr int kThreads = 3 * 128;
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
static_assert(kThreads == 384 && kProducerRegisters + 2 * kConsumerRegisters <= 3 * 168);

template <int D>
struct Shared {
    static constexpr int kQueryBytes = kWgmmaRows * D * 2, kTileBytes = kKeys * D * 2;
    static constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
    static constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
    static constexpr int kBytes = kBarriersAt + 4 * kStages * 8;
    static_assert(kBytes + 1024 <= cuda::max_shared_bytes(90));
};

/// This warpgroup's 64 rows of queries.
template <class T, int D>
__device__ void load_queries(const AttendParams& p, const Item& item, int first, std::uint32_t to) {
    constexpr int kChunks = D / 8, kRows = 32 / kChunks;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const bool is_whole = is_vector<T>(p.q);
    const int chunk = lane % kChunks;
#pragma unroll 4
    for (int i = 0; i < 16 / kRows; ++i) {
        const int r = first + warp * 16 + i * kRows + lane / kChunks;
        std::uint32_t x[4] = {};
        if (r < item.num_rows) {
            const Target t = target_of(p, item, r);
            const std::int64_t from = t.token * p.q.row_stride + t.head * p.q.head_stride + chunk * 8;
            load_piece<T>(p.q, from, is_whole, x);
        }
        store_shared(to + place(kWgmmaRows, r, chunk), x);
    }
}

/// Queues the copies of one tile of keys or values whose last rows are not there, which become zeros:
/// what lies in a page behind the last token may be anything. A lane knows the slot of one of the
/// warp's rows.
template <class T, int D>
__device__ void load_tile(const T* base, std::int64_t row_entries, std::int64_t slot, std::uint32_t to) {
    constexpr int kChunks = D / 8, kRows = 32 / kChunks;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int chunk = lane % kChunks;
#pragma unroll 8
    for (int i = 0; i < 32 / kRows; ++i) {
        const int r = i * kRows + lane / kChunks;
        const std::int64_t at = __shfl_sync(0xffffffffu, slot, r);
        copy_async(to + place(kKeys, warp * 32 + r, chunk), base + (at < 0 ? 0 : at) * row_entries + chunk * 8, at >= 0);
    }
    commit_copies();
}

/// Planes as rows of slots; a box is 64 entries of some consecutive slots of one page.
struct Maps {
    CUtensorMap keys, values;
};

/// Queues whole boxes; a lane has the first slot of one box, absent pages beyond the extent.
template <int D>
__device__ void load_boxes(const CUtensorMap* map, int column, int slot, int box_rows, std::uint32_t to,
                           std::uint32_t barrier) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane * box_rows >= kKeys) return;
#pragma unroll
    for (int half = 0; half < D / 64; ++half)
        copy_box(to + static_cast<std::uint32_t>((half * kKeys + lane * box_rows) * 128), map, column + half * 64, slot,
                 barrier);
}

/// Largest scores, weights and totals of one tile. Returns what earlier sums are multiplied by.
struct Rows {
    int pos[2], first_key[2];
    float largest[2], total[2];
};
__device__ __forceinline__ void weigh(const AttendParams& p, const Item& item, int k0, Rows& rows, float (&s)[64],
                                      float (&rescale)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool is_edge = k0 + kKeys > min(item.first_pos + 1, item.key_end) ||
                         (p.shape.window != 0 && k0 <= item.last_pos - p.shape.window);
    const float scale = p.scale * kLog2E;
    if (p.softcap != 0)
#pragma unroll
        for (int i = 0; i < 64; ++i) s[i] = score(p, s[i]) / scale;
    if (is_edge)
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            const int k = k0 + i / 4 * 8 + lane % 4 * 2 + i % 2, h = i / 2 % 2;
            if (k > rows.pos[h] || k < rows.first_key[h] || k >= item.key_end) s[i] = ATTENTION_NEGATIVE_INFINITY;
        }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float top = rows.largest[h];
#pragma unroll
        for (int i = 0; i < 32; ++i) top = fmaxf(top, s[i / 2 * 4 + 2 * h + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float reference = top == ATTENTION_NEGATIVE_INFINITY ? 0.0F : top * scale;
        rescale[h] = exp2_approx(fmaf(rows.largest[h], scale, -reference));
        rows.largest[h] = top;
        float total = 0;
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            float& x = s[i / 2 * 4 + 2 * h + i % 2];
            x = exp2_approx(fmaf(x, scale, -reference));
            total += x;
        }
        rows.total[h] = rows.total[h] * rescale[h] + total;
    }
}

template <class T>
__device__ __forceinline__ void narrow_weights(const float (&s)[64], std::uint32_t (&w)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) w[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

/// Scores of 64 rows and a tile of keys, queued.
template <class T, int D>
__device__ __forceinline__ void queue_scores(float (&s)[64], std::uint32_t queries, std::uint32_t keys) {
    pin(s);
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
        const std::uint32_t step = k % 4 * 32;
        multiply_shared<T>(s, descriptor(queries + k / 4 * kWgmmaRows * 128 + step),
                           descriptor(keys + k / 4 * kKeys * 128 + step), k != 0);
    }
    commit_wgmma();
}

/// Sums over the values of a tile, queued.
template <class T, int D>
__device__ __forceinline__ void queue_sums(float (&sum)[D / 2], const std::uint32_t (&w)[32], std::uint32_t values) {
    pin(sum);
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
        multiply_registers<T>(sum, w + 4 * k, descriptor(values + k * 16 * 128, kKeys * 128), true);
    commit_wgmma();
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 1) attend(const AttendParams p, const __grid_constant__ Maps maps, int box_rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using S = Shared<D>;
    static_assert(S::kBytes + 1024 <= cuda::kMaxSharedBytes);
    extern __shared__ char raw[];
    const std::uint32_t shared = (shared_address(raw) + 1023) / 1024 * 1024;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / 128;
    const auto barrier = [&](int kind, int stage) {
        return shared + S::kBarriersAt + static_cast<std::uint32_t>(kind * kStages + stage) * 8;
    };
    constexpr int kFullKeys = 0, kFullValues = 1, kFreeKeys = 2, kFreeValues = 3;
    if (thread == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            init_barrier(barrier(kFullKeys, stage), 128);
            init_barrier(barrier(kFullValues, stage), 128);
            init_barrier(barrier(kFreeKeys, stage), 8);
            init_barrier(barrier(kFreeValues, stage), 8);
        }
    }
    cuda::wait_for_inputs();
    const Item item = find_item(p, static_cast<int>(blockIdx.x), false);
    const int first_tile = item.key_begin / kKeys * kKeys;
    const int num_tiles = (item.key_end - first_tile + kKeys - 1) / kKeys;
    __syncthreads();

    if (group == 2) {
        give_registers<kProducerRegisters>();
        // Tiles of which every token is there come as boxes, from one warp; all threads arrive, so
        // that both ways count alike.
        const int num_whole = min(num_tiles, max(0, (item.kv_len - first_tile) / kKeys));
        const int column = item.kv_head * D;
        const auto box_slot = [&](int t) {
            const int k = first_tile + t * kKeys + lane * box_rows;
            if (t >= num_whole || lane * box_rows >= kKeys) return 0;
            const std::int64_t at = slot_of(p.batch, item.blocks, k);
            return at < 0 ? kMapRows : static_cast<int>(at);
        };
        const auto tile_at = [&](int is_values, int stage) {
            return shared + (is_values ? S::kValuesAt : S::kKeysAt) + static_cast<std::uint32_t>(stage * S::kTileBytes);
        };
        int slot = box_slot(0);
        for (int t = 0; t < num_whole; ++t) {
            const int stage = t % kStages, parity = t / kStages % 2;
            const int next = box_slot(t + 1);
            for (int is_values = 0; is_values < 2; ++is_values) {
                const std::uint32_t full = barrier(kFullKeys + is_values, stage);
                if (t >= kStages) wait_barrier(barrier(kFreeKeys + is_values, stage), parity ^ 1);
                if (thread == 256) arrive_expecting(full, S::kTileBytes);
                else arrive(full);
                if (thread < 256 + 32) {
                    __syncwarp();
                    load_boxes<D>(is_values ? &maps.values : &maps.keys, column, slot, box_rows,
                                  tile_at(is_values, stage), full);
                }
            }
            slot = next;
        }
        for (int t = num_whole; t < num_tiles; ++t) {
            const int stage = t % kStages, parity = t / kStages % 2;
            const std::int64_t row_slot = key_slot(p, item, first_tile + t * kKeys + (thread - 256));
            for (int is_values = 0; is_values < 2; ++is_values) {
                if (t >= kStages) wait_barrier(barrier(kFreeKeys + is_values, stage), parity ^ 1);
                load_tile<T, D>(static_cast<const T*>(is_values ? p.values : p.keys) + column,
                                is_values ? p.value_row : p.key_row, row_slot, tile_at(is_values, stage));
            }
            wait_copies<1>();
            fence_async_proxy();
            arrive(barrier(kFullKeys, stage));
            wait_copies<0>();
            fence_async_proxy();
            arrive(barrier(kFullValues, stage));
        }
    } else {
        take_registers<kConsumerRegisters>();
        const int first_row = group * 64;
        load_queries<T, D>(p, item, first_row, shared);
        fence_async_proxy();
        named_barrier(1 + group, 128);
        const std::uint32_t queries = shared + static_cast<std::uint32_t>(first_row * 128);
        const auto keys_at = [&](int t) { return shared + S::kKeysAt + static_cast<std::uint32_t>(t % kStages * S::kTileBytes); };
        const auto values_at = [&](int t) { return shared + S::kValuesAt + static_cast<std::uint32_t>(t % kStages * S::kTileBytes); };

        Rows rows;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = first_row + thread / 32 % 4 * 16 + h * 8 + lane / 4;
            rows.pos[h] = item.kv_len - item.q_len + (item.first_row + min(r, item.num_rows - 1)) / p.shape.group;
            rows.largest[h] = ATTENTION_NEGATIVE_INFINITY;
            rows.total[h] = 0;
            rows.first_key[h] = p.shape.window != 0 ? rows.pos[h] - p.shape.window + 1 : 0;
        }
        float s[64], sum[D / 2] = {}, rescale[2];
        std::uint32_t weights[32];

        wait_barrier(barrier(kFullKeys, 0), 0);
        queue_scores<T, D>(s, queries, keys_at(0));
        wait_wgmma<0>();
        pin(s);
        if (lane == 0) arrive(barrier(kFreeKeys, 0));
        weigh(p, item, first_tile, rows, s, rescale);
        narrow_weights<T>(s, weights);

        for (int t = 1; t < num_tiles; ++t) {
            const int stage = t % kStages, last = (t - 1) % kStages;
            wait_barrier(barrier(kFullKeys, stage), t / kStages % 2);
            queue_scores<T, D>(s, queries, keys_at(t));
            wait_barrier(barrier(kFullValues, last), (t - 1) / kStages % 2);
            queue_sums<T, D>(sum, weights, values_at(t - 1));
            wait_wgmma<1>();
            pin(s);
            if (lane == 0) arrive(barrier(kFreeKeys, stage));
            weigh(p, item, first_tile + t * kKeys, rows, s, rescale);
            wait_wgmma<0>();
            pin(sum);
            if (lane == 0) arrive(barrier(kFreeValues, last));
#pragma unroll
            for (int i = 0; i < D / 2; ++i) sum[i] *= rescale[i / 2 % 2];
            narrow_weights<T>(s, weights);
        }
        const int last = (num_tiles - 1) % kStages;
        wait_barrier(barrier(kFullValues, last), (num_tiles - 1) / kStages % 2);
        queue_sums<T, D>(sum, weights, values_at(num_tiles - 1));
        wait_wgmma<0>();
        pin(sum);

#pragma unroll
        for (int h = 0; h < 2; ++h) {
            rows.total[h] += __shfl_xor_sync(0xffffffffu, rows.total[h], 1);
            rows.total[h] += __shfl_xor_sync(0xffffffffu, rows.total[h], 2);
            const int r = first_row + thread / 32 % 4 * 16 + h * 8 + lane / 4;
            if (r >= item.num_rows) continue;
            const Target to = target_of(p, item, r);
            const Finish f = finish(rows.largest[h] * (p.scale * kLog2E), rows.total[h], p.sinks, to.head);
            if (lane % 4 == 0 && p.lse != nullptr) p.lse[to.token * p.lse_stride + to.head] = f.lse;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                const bool is_empty = rows.total[h] == 0;
                store_pair(p.out, to.out + n * 8 + lane % 4 * 2, is_empty ? 0.0F : sum[4 * n + 2 * h] * f.factor,
                           is_empty ? 0.0F : sum[4 * n + 2 * h + 1] * f.factor);
            }
        }
    }
#else
    (void)p, (void)maps, (void)box_rows;
    __trap();  // has_wgmma() is false for such a build
#endif
}

/// The driver's function, asked for at run time: nothing here links the driver.
using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
cudaError_t encoder(EncodeTiled* out) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    *out = reinterpret_cast<EncodeTiled>(found);
    return result == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t make_map(EncodeTiled encode, std::int32_t dtype, const void* plane, std::int64_t row_entries, int box_rows,
                     CUtensorMap* map) {
    const cuuint64_t extent[] = {static_cast<cuuint64_t>(row_entries), kMapRows};
    const cuuint64_t row_bytes[] = {static_cast<cuuint64_t>(row_entries) * 2};
    const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, step[] = {1, 1};
    const CUresult result =
        encode(map, dtype == ASSAY_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
               const_cast<void*>(plane), extent, row_bytes, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <class T>
cudaError_t launch_dtype(const AttendParams& p, std::int32_t kv_dtype, int items, const assay_stream* s) {
    static const EncodeTiled kEncode = [] {
        EncodeTiled encode = nullptr;
        return encoder(&encode) == cudaSuccess ? encode : nullptr;
    }();
    if (kEncode == nullptr) return cudaErrorNotSupported;
    // The largest power of two that pages are made of: 16 at least, since pages are multiples of it.
    const int page = static_cast<int>(p.batch.page.page_tokens);
    int box_rows = kKeys;
    while (page % box_rows != 0) box_rows /= 2;
    Maps maps;
    cudaError_t error = make_map(kEncode, kv_dtype, p.keys, p.key_row, box_rows, &maps.keys);
    if (error == cudaSuccess) error = make_map(kEncode, kv_dtype, p.values, p.value_row, box_rows, &maps.values);
    if (error != cudaSuccess) return error;
    const bool is_wide = p.key_dim > 64;
    const auto kernel = is_wide ? attend<T, 128> : attend<T, 64>;
    const int bytes = (is_wide ? Shared<128>::kBytes : Shared<64>::kBytes) + 1024;  // alignment
    return cuda::launch(kernel, dim3(static_cast<unsigned>(items)), dim3(kThreads), static_cast<std::size_t>(bytes), s,
                        true, p, maps, box_rows);
}

}  // namespace

cudaError_t launch_wgmma_many(const AttendParams& p, std::int32_t kv_dtype, int items,
                              const assay_stream* s) {
    return kv_dtype == ASSAY_F16 ? launch_dtype<__half>(p, kv_dtype, items, s)
                                 : launch_dtype<__nv_bfloat16>(p, kv_dtype, items, s);
}

}  // namespace attention::gpu
