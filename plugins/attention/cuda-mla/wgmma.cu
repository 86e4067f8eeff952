// Absorbed multi-head latent attention on Hopper's warpgroup instructions, for blocks of 64 rows.
// Reads 1152 bytes per key and token; 64 rows need 139 operations for each of them, a third of what
// the tensor cores do in that time. Shared memory holds the rows (72 KiB) and two tiles of 64 keys.
//
// Two warpgroups share the rows: each scores half of a tile's keys, weights meet in shared memory,
// and each sums half of the value dims over all keys of the tile. The sum over one tile is under way
// while the next is scored.

#include "../cuda-common/rows.cuh"
#include "../cuda-common/wgmma.cuh"
#include "mla.hpp"

namespace attention::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = kWgmmaRows, kKeys = 64;  // of a tile
constexpr int kStages = 2;
constexpr int kColumnBlocks = kMaxKeyDim / 64, kBlockBytes = kRows * 128;  // 64 rows of 64 entries
constexpr int kTileBytes = kColumnBlocks * kBlockBytes;
constexpr int kWeightsAt = (1 + kStages) * kTileBytes, kSharesAt = kWeightsAt + kBlockBytes;
constexpr int kSharedBytes = kSharesAt + 2 * kRows * 4 + 1024;  // alignment
static_assert(kRows == kKeys && kMaxKeyDim % 64 == 0 && kMaxValueDim == 512);
static_assert(kSharedBytes <= cuda::max_shared_bytes(90));

/// 0 or 1, known to be the same for a warp: descriptors then lie in uniform registers.
__device__ __forceinline__ int warpgroup() {
    return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
}

template <class T>
__device__ void load_queries(const AttendParams& p, const Item& item, std::uint32_t to) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool is_whole = is_vector<T>(p.q);
    const int r = thread / 4;
    std::int64_t from = 0;
    if (r < item.num_rows) {
        const Target t = target_of(p, item, r);
        from = t.token * p.q.row_stride + t.head * p.q.head_stride;
    }
#pragma unroll 6
    for (int chunk = thread % 4; chunk < kMaxKeyDim / 8; chunk += 4) {
        std::uint32_t x[4] = {};
        if (r < item.num_rows && chunk * 8 < p.key_dim) load_piece<T>(p.q, from + chunk * 8, is_whole, x);
        store_shared(to + place(kRows, r, chunk), x);
    }
}

/// The slots of this thread's two rows of a tile; looked up one tile ahead of their use.
struct Slots {
    std::int64_t of[2];
};
__device__ Slots look_up(const AttendParams& p, const Item& item, int k0) {
    const int row = static_cast<int>(threadIdx.x) / 8;
    return {{key_slot(p, item, k0 + row), key_slot(p, item, k0 + row + 32)}};
}

/// Queues the copies of a tile, eight threads a row; zeros where there is no key, and past key_dim.
template <class T>
__device__ void load_tile(const AttendParams& p, const Slots& slots, std::uint32_t to) {
    const int part = static_cast<int>(threadIdx.x) % 8;
    const auto* base = static_cast<const T*>(p.keys);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = static_cast<int>(threadIdx.x) / 8 + 32 * i;
        const std::int64_t slot = slots.of[i];
        const T* from = base + (slot < 0 ? 0 : slot) * p.key_row + part * 8;
#pragma unroll
        for (int c = 0; c < kColumnBlocks; ++c) {
            const bool is_there = slot >= 0 && c * 64 + part * 8 < p.key_dim;
            copy_async(to + place(kKeys, row, c * 8 + part), is_there ? from + c * 64 : base, is_there);
        }
    }
    commit_copies();
}

/// Scores of all rows and this warpgroup's half of the keys, queued.
template <class T>
__device__ __forceinline__ void queue_scores(float (&s)[16], std::uint32_t queries, std::uint32_t keys) {
    const std::uint32_t half = static_cast<std::uint32_t>(warpgroup() * 32 * 128);
    pin(s);
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < kMaxKeyDim / 16; ++k) {
        const std::uint32_t at = static_cast<std::uint32_t>(k / 4 * kBlockBytes + k % 4 * 32);
        multiply_shared<T>(s, descriptor(queries + at), descriptor(keys + at + half), k != 0);
    }
    commit_wgmma();
}

/// Sums of this warpgroup's half of the value dims, queued.
template <class T>
__device__ __forceinline__ void queue_sums(float (&sum)[128], std::uint32_t weights, std::uint32_t keys) {
    const std::uint32_t half = static_cast<std::uint32_t>(warpgroup() * 4 * kBlockBytes);
    pin(sum);
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
        multiply_shared_transposed<T>(sum, descriptor(weights + static_cast<std::uint32_t>(k * 32)),
                                      descriptor(keys + half + static_cast<std::uint32_t>(k * 16 * 128), kBlockBytes),
                                      true);
    commit_wgmma();
}

/// Scores of a tile to weights in shared memory; what earlier sums are multiplied by to `rescale`.
template <class T>
__device__ __forceinline__ void weigh(const AttendParams& p, const Item& item, int k0, const int (&pos)[2], float (&s)[16],
                                      float (&largest)[2], float (&total)[2], float (&rescale)[2], float* shares,
                                      std::uint32_t weights) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / 128, quad = lane % 4;
    const int row = thread / 32 % 4 * 16 + lane / 4;
    const bool is_edge = item.selection != nullptr || k0 + kKeys > min(item.first_pos + 1, item.key_end) ||
                         (p.shape.window != 0 && k0 <= item.last_pos - p.shape.window);
    float top[2] = {ATTENTION_NEGATIVE_INFINITY, ATTENTION_NEGATIVE_INFINITY};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const int k = k0 + group * 32 + j / 4 * 8 + quad * 2 + j % 2, h = j / 2 % 2;
        float x = score(p, s[j]);
        if (is_edge && !sees(p, item, pos[h], k)) x = ATTENTION_NEGATIVE_INFINITY;
        s[j] = x;
        top[h] = fmaxf(top[h], x);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
        if (quad == 0) shares[group * kRows + row + 8 * h] = top[h];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float all = fmaxf(largest[h], fmaxf(top[h], shares[(1 - group) * kRows + row + 8 * h]));
        const float reference = all == ATTENTION_NEGATIVE_INFINITY ? 0.0F : all;
        rescale[h] = exp2_approx(largest[h] - reference);
        largest[h] = all;
        total[h] *= rescale[h];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const float a = exp2_approx(s[4 * n + 2 * h] - reference);
            const float b = exp2_approx(s[4 * n + 2 * h + 1] - reference);
            total[h] += a + b;
            const std::uint32_t to = weights + place(kRows, row + 8 * h, group * 4 + n) + static_cast<std::uint32_t>(quad * 4);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pack<T>(a, b)) : "memory");
        }
    }
}

__device__ __forceinline__ void scale(float (&sum)[128], const float (&rescale)[2]) {
#pragma unroll
    for (int j = 0; j < 128; ++j) sum[j] *= rescale[j / 2 % 2];
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) attend(const AttendParams p, bool is_few) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ char raw[];
    const std::uint32_t queries = (shared_address(raw) + 1023) / 1024 * 1024;
    char* const shared = raw + (queries - shared_address(raw));
    auto* shares = reinterpret_cast<float*>(shared + kSharesAt);  // [2, kRows]
    const std::uint32_t weights = queries + kWeightsAt;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / 128;
    const int quad = lane % 4, row = thread / 32 % 4 * 16 + lane / 4;  // and 8 further
    cuda::wait_for_inputs();
    const int num_items = is_few ? p.schedule.few_begin[p.batch.num_seqs] : static_cast<int>(gridDim.x);
    const auto tile_at = [&](int t) { return queries + static_cast<std::uint32_t>((1 + t % kStages) * kTileBytes); };

    for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
        const Item item = find_item(p, i, is_few);
        const int first_tile = item.key_begin / kKeys * kKeys;
        const int num_tiles = item.key_end > first_tile ? (item.key_end - first_tile + kKeys - 1) / kKeys : 0;
        Slots slots = look_up(p, item, first_tile);
        if (num_tiles > 0) load_tile<T>(p, slots, tile_at(0));
        slots = look_up(p, item, first_tile + kKeys);
        load_queries<T>(p, item, queries);

        int pos[2];
        float s[16], sum[128], largest[2], total[2], rescale[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            pos[h] = item.kv_len - item.q_len + (item.first_row + min(row + 8 * h, item.num_rows - 1)) / p.shape.group;
            largest[h] = ATTENTION_NEGATIVE_INFINITY;
            total[h] = 0;
        }
#pragma unroll
        for (int j = 0; j < 128; ++j) sum[j] = 0;

        if (num_tiles > 0) {
            wait_copies<0>();
            fence_async_proxy();
            __syncthreads();
            queue_scores<T>(s, queries, tile_at(0));
            if (num_tiles > 1) load_tile<T>(p, slots, tile_at(1));
            slots = look_up(p, item, first_tile + 2 * kKeys);
            wait_wgmma<0>();
            pin(s);
        }
        for (int t = 0; t + 1 < num_tiles; ++t) {
            weigh<T>(p, item, first_tile + t * kKeys, pos, s, largest, total, rescale, shares, weights);
            scale(sum, rescale);
            wait_copies<0>();
            fence_async_proxy();
            __syncthreads();
            queue_sums<T>(sum, weights, tile_at(t));
            queue_scores<T>(s, queries, tile_at(t + 1));
            wait_wgmma<1>();
            pin(sum);
            __syncthreads();  // of both warpgroups: the memory of tile t is free
            if (t + 2 < num_tiles) {
                load_tile<T>(p, slots, tile_at(t + 2));
                slots = look_up(p, item, first_tile + (t + 3) * kKeys);
            }
            wait_wgmma<0>();
            pin(s);
        }
        if (num_tiles > 0) {
            const int t = num_tiles - 1;
            weigh<T>(p, item, first_tile + t * kKeys, pos, s, largest, total, rescale, shares, weights);
            scale(sum, rescale);
            fence_async_proxy();
            __syncthreads();
            queue_sums<T>(sum, weights, tile_at(t));
            wait_wgmma<0>();
            pin(sum);
        }

#pragma unroll
        for (int h = 0; h < 2; ++h) {
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
            if (quad == 0) shares[group * kRows + row + 8 * h] = total[h];
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = row + 8 * h;
            if (r >= item.num_rows) continue;
            const float all = shares[r] + shares[kRows + r];
            const Target to = target_of(p, item, r);
            const bool is_partial = item.num_splits > 1;
            const Finish f = finish(largest[h], all, p.sinks, to.head);
            if (group == 0 && quad == 0) {
                if (is_partial)
                    p.partial_state[to.partial] = {largest[h], all};
                else if (p.lse != nullptr)
                    p.lse[to.token * p.lse_stride + to.head] = f.lse;
            }
#pragma unroll
            for (int n = 0; n < 32; ++n) {
                const int d = group * 256 + n * 8 + quad * 2;
                const float a = sum[4 * n + 2 * h], b = sum[4 * n + 2 * h + 1];
                if (is_partial) {
                    float* out = p.partial_sum + to.partial * p.value_dim + d;
                    if (d < p.value_dim) out[0] = a;
                    if (d + 1 < p.value_dim) out[1] = b;
                } else {
                    const float x = all == 0 ? 0.0F : a * f.factor, y = all == 0 ? 0.0F : b * f.factor;
                    if (d + 1 < p.value_dim)
                        store_pair(p.out, to.out + d, x, y);
                    else if (d < p.value_dim)
                        store(p.out, to.out + d, x);
                }
            }
        }
        __syncthreads();
    }
#else
    (void)p, (void)is_few;
    __trap();  // has_wgmma() is false for such a build
#endif
}

template <class T>
cudaError_t queue(const AttendParams& p, bool is_few, int blocks, const assay_stream* s) {
    return cuda::launch(attend<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), kSharedBytes, s, true, p, is_few);
}

}  // namespace

cudaError_t launch_wgmma(const AttendParams& p, std::int32_t kv_dtype, int items, int num_units,
                         const assay_stream* s) {
    const int blocks = items == 0 ? num_units : items;
    return kv_dtype == ASSAY_F16 ? queue<__half>(p, items == 0, blocks, s)
                                 : queue<__nv_bfloat16>(p, items == 0, blocks, s);
}

}  // namespace attention::gpu
