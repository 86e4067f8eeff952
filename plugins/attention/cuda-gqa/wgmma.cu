// Grouped-query attention for many queries on Hopper's warpgroup instructions. Bound by the tensor
// cores: 2 (D + Dv) operations per query head and pair, 786 TFLOP/s measured for bf16 on an H200.
//
// Two warpgroups have 64 rows each, a third brings tiles of 128 keys and values by cp.async (pages
// lie anywhere), kStages deep. A warpgroup has the product with the next keys and the sum over the
// last values under way while it turns scores into weights.

#include "../cuda-common/rows.cuh"
#include "gqa.hpp"
#include "wgmma.cuh"

#include <string_view>

namespace attention::gpu {
namespace {

constexpr int kKeys = 128;  // of a tile
constexpr int kStages = 2;
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

/// Byte offset of 16-byte piece `chunk` of a row, in blocks of 64 columns of `rows` rows.
__device__ std::uint32_t place(int rows, int row, int chunk) {
    return static_cast<std::uint32_t>(((chunk / 8) * rows + row) * 128 + ((chunk ^ row) & 7) * 16);
}

/// This warpgroup's 64 rows of queries.
template <class T, int D>
__device__ void load_queries(const AttendParams& p, const Item& item, int first, std::uint32_t to) {
    constexpr int kChunks = D / 8, kRows = 32 / kChunks;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    constexpr std::int32_t kDtype = __is_same(T, __half) ? ASSAY_F16 : ASSAY_BF16;
    const bool is_vector = p.q.dtype == kDtype && (p.q.row_stride | p.q.head_stride) % 8 == 0 &&
                           reinterpret_cast<std::uintptr_t>(p.q.data) % 16 == 0;
    const int chunk = lane % kChunks;
#pragma unroll 4
    for (int i = 0; i < 16 / kRows; ++i) {
        const int r = first + warp * 16 + i * kRows + lane / kChunks;
        std::uint32_t x[4] = {};
        if (r < item.num_rows) {
            const Target t = target_of(p, item, r);
            const std::int64_t from = t.token * p.q.row_stride + t.head * p.q.head_stride + chunk * 8;
            if (is_vector) {
                const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const T*>(p.q.data) + from);
                x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    x[j] = pack<T>(load(p.q, from + 2 * j), load(p.q, from + 2 * j + 1));
            }
        }
        asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to + place(kWgmmaRows, r, chunk)), "r"(x[0]),
                     "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    }
}

/// Queues the copies of one tile of keys or values. A lane knows the slot of one of the warp's rows.
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
__global__ void __launch_bounds__(kThreads, 1) attend(const AttendParams p) {
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
        const T* keys = static_cast<const T*>(p.keys) + item.kv_head * D;
        const T* values = static_cast<const T*>(p.values) + item.kv_head * D;
        std::uint32_t pending = 0;  // barrier of the copies that were queued last
        const auto announce = [&] {
            fence_async_proxy();
            arrive(pending);
            pending = 0;
        };
        std::int64_t slot = -1;
        for (int i = 0; i < 2 * num_tiles; ++i) {
            const int t = i / 2, stage = t % kStages, parity = t / kStages % 2, is_values = i % 2;
            const std::uint32_t free = barrier(kFreeKeys + is_values, stage);
            if (is_values == 0) slot = key_slot(p, item, first_tile + t * kKeys + (thread - 256));
            if (t >= kStages && !is_over(free, parity ^ 1)) {
                // The memory is in use; meanwhile the last copies may arrive.
                if (pending != 0) {
                    wait_copies<0>();
                    announce();
                }
                wait_barrier(free, parity ^ 1);
            }
            const std::uint32_t to =
                shared + (is_values ? S::kValuesAt : S::kKeysAt) + static_cast<std::uint32_t>(stage * S::kTileBytes);
            load_tile<T, D>(is_values ? values : keys, is_values ? p.value_row : p.key_row, slot, to);
            if (pending != 0) {
                wait_copies<1>();
                announce();
            }
            pending = barrier(kFullKeys + is_values, stage);
        }
        wait_copies<0>();
        if (pending != 0) announce();
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
            for (int i = 0; i < D / 4; ++i) {
                const int d = i / 2 * 8 + lane % 4 * 2 + i % 2;
                store(p.out, to.out + d, rows.total[h] == 0 ? 0.0F : sum[i / 2 * 4 + 2 * h + i % 2] * f.factor);
            }
        }
    }
#else
    (void)p;
    __trap();  // has_wgmma() is false for such a build
#endif
}

template <class T>
cudaError_t launch_dtype(const AttendParams& p, int items, const assay_stream* s) {
    const bool is_wide = p.key_dim > 64;
    const auto kernel = is_wide ? attend<T, 128> : attend<T, 64>;
    const int bytes = (is_wide ? Shared<128>::kBytes : Shared<64>::kBytes) + 1024;  // alignment
    return cuda::launch(kernel, dim3(static_cast<unsigned>(items)), dim3(kThreads), static_cast<std::size_t>(bytes), s,
                        true, p);
}

}  // namespace

cudaError_t launch_wgmma_many(const AttendParams& p, std::int32_t kv_dtype, int items,
                              const assay_stream* s) {
    return kv_dtype == ASSAY_F16 ? launch_dtype<__half>(p, items, s) : launch_dtype<__nv_bfloat16>(p, items, s);
}

bool has_wgmma() {
    return std::string_view{ASSAY_CUDA_TARGETS}.find("90a") != std::string_view::npos;
}

}  // namespace attention::gpu
