#pragma once

// What every attention kernel does with a batch: finds its item, its rows and its keys, and turns
// scores into weights. Scores are kept times log2 e, so that a weight is one exp2.

#include "mma.cuh"
#include "params.hpp"
#include "plugins/cuda/launch.cuh"

#include "abi/plugin.h"

#include <cmath>

namespace attention::gpu {

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;
#define ATTENTION_NEGATIVE_INFINITY __int_as_float(0xff800000)

__device__ inline float load(const View& v, std::int64_t offset) {
    if (v.dtype == ASSAY_F32) return static_cast<const float*>(v.data)[offset];
    if (v.dtype == ASSAY_F16) return __half2float(static_cast<const __half*>(v.data)[offset]);
    return __bfloat162float(static_cast<const __nv_bfloat16*>(v.data)[offset]);
}
__device__ inline void store(const View& v, std::int64_t offset, float x) {
    if (v.dtype == ASSAY_F32)
        static_cast<float*>(v.data)[offset] = x;
    else if (v.dtype == ASSAY_F16)
        static_cast<__half*>(v.data)[offset] = __float2half_rn(x);
    else
        static_cast<__nv_bfloat16*>(v.data)[offset] = __float2bfloat16_rn(x);
}

/// Whether pieces of eight entries can be loaded whole and need no conversion to T.
template <class T>
__device__ inline bool is_vector(const View& v) {
    constexpr std::int32_t kDtype = __is_same(T, __half) ? ASSAY_F16 : ASSAY_BF16;
    return v.dtype == kDtype && (v.row_stride | v.head_stride) % 8 == 0 &&
           reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
}
/// Entries [offset, offset + 8) as T, two to a register.
template <class T>
__device__ inline void load_piece(const View& v, std::int64_t offset, bool is_whole, std::uint32_t (&x)[4]) {
    if (is_whole) {
        const uint4 piece = *reinterpret_cast<const uint4*>(static_cast<const T*>(v.data) + offset);
        x[0] = piece.x, x[1] = piece.y, x[2] = piece.z, x[3] = piece.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = pack<T>(load(v, offset + 2 * j), load(v, offset + 2 * j + 1));
}
__device__ inline void store_shared(std::uint32_t to, const std::uint32_t (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
/// Entries [offset, offset + 2), at once where the dtype is half and the address even.
__device__ inline void store_pair(const View& v, std::int64_t offset, float a, float b) {
    if (v.dtype == ASSAY_F32 || offset % 2 != 0 || reinterpret_cast<std::uintptr_t>(v.data) % 4 != 0) {
        store(v, offset, a);
        store(v, offset + 1, b);
    } else {
        static_cast<std::uint32_t*>(v.data)[offset / 2] =
            v.dtype == ASSAY_F16 ? pack<__half>(a, b) : pack<__nv_bfloat16>(a, b);
    }
}

__device__ inline std::int32_t page_of(const PageDivider& page, std::int32_t pos) {
    return page.factor == 0 ? pos
                            : static_cast<std::int32_t>(
                                  __umulhi(static_cast<std::uint32_t>(pos), page.factor));
}

/// The slot of a position, -1 when its page is not there.
__device__ inline std::int64_t slot_of(const BatchParams& b, const std::int32_t* blocks,
                                       std::int32_t pos) {
    const std::int32_t block = page_of(b.page, pos);
    const std::int32_t size = static_cast<std::int32_t>(b.page.page_tokens);
    const std::int32_t page = __ldg(blocks + block);
    return page < 0 ? -1 : std::int64_t{page} * size + (pos - block * size);
}

/// The sequence that owns item `i`: the number of sequences that end at or before it. For a whole
/// block of threads.
__device__ inline int owner(const std::int32_t* begin, int num_seqs, int i) {
    int before = 0;
    for (int base = 0; base < num_seqs; base += static_cast<int>(blockDim.x)) {
        const int s = base + static_cast<int>(threadIdx.x);
        before += __syncthreads_count(s < num_seqs && begin[s + 1] <= i);
    }
    return before;
}

/// One piece of work: rows of a sequence under one key head, over a range of its keys.
struct Item {
    int seq, kv_head, split, num_splits;
    int first_token, q_len, kv_len;  // of the sequence
    int first_row, num_rows;         // rows of this item
    int first_pos, last_pos;         // positions of its first and last query
    int key_begin, key_end;          // keys that it reads: positions, or places of the selection
    const std::int32_t* blocks;      // the sequence's page ids
    const std::int32_t* selection;   // slots of the only query token, or null
};

/// @param i         item number
/// @param is_few    of the sequences whose keys are split, or of the others, a block of threads each
__device__ inline Item find_item(const AttendParams& p, int i, bool is_few) {
    const Geometry& g = p.shape;
    const std::int32_t* begin = is_few ? p.schedule.few_begin : p.schedule.many_begin;
    const int rows = is_few ? g.few_rows : g.many_rows;
    Item item;
    // Few queries: heads side by side, as they lie in a token's row. Many: one head after the other,
    // so that the keys that are read at one time stay in L2.
    const int units = static_cast<int>(gridDim.x) / g.num_kv_heads;
    item.kv_head = is_few ? i % g.num_kv_heads : i / units;
    const int unit = is_few ? i / g.num_kv_heads : i % units;
    item.seq = owner(begin, p.batch.num_seqs, unit);
    item.first_token = p.batch.cu_q[item.seq];
    item.q_len = p.batch.cu_q[item.seq + 1] - item.first_token;
    item.kv_len = p.batch.kv_len[item.seq];
    item.blocks = p.batch.block_table + std::int64_t{item.seq} * p.batch.max_blocks;
    const int local = unit - begin[item.seq];
    const int per_token = (g.group + rows - 1) / rows;  // row tiles of one token, sparse
    const int tiles = g.topk != 0 ? item.q_len * per_token : (item.q_len * g.group + rows - 1) / rows;
    item.num_splits = is_few ? p.schedule.num_splits[item.seq] : 1;
    item.split = is_few ? local / tiles : 0;
    // The last rows see the most keys: they go first.
    const int tile = is_few ? local % tiles : tiles - 1 - local;
    item.selection = nullptr;
    if (g.topk != 0) {
        const int token = tile / per_token, part = tile % per_token;
        item.first_row = token * g.group + part * rows;
        item.num_rows = min(rows, g.group - part * rows);
        item.selection = p.topk_slots + (item.first_token + token) * p.topk_stride;
    } else {
        item.first_row = tile * rows;
        item.num_rows = min(rows, item.q_len * g.group - item.first_row);
    }
    const int before = item.kv_len - item.q_len;
    item.first_pos = before + item.first_row / g.group;
    item.last_pos = before + (item.first_row + item.num_rows - 1) / g.group;
    int begin_key = 0, end_key = g.topk;
    if (g.topk == 0) {
        begin_key = g.window != 0 ? max(0, item.first_pos - g.window + 1) / kSplitStep * kSplitStep : 0;
        end_key = item.last_pos + 1;
    }
    if (is_few) {
        const int base = g.topk == 0 && g.window != 0
                             ? max(0, before - g.window + 1) / kSplitStep * kSplitStep
                             : 0;
        const int length = p.schedule.split_len[item.seq];
        begin_key = max(begin_key, base + item.split * length);
        end_key = min(end_key, base + (item.split + 1) * length);
    }
    item.key_begin = begin_key;
    item.key_end = end_key;
    return item;
}

/// The slot of key `k` of an item, -1 for none.
__device__ inline std::int64_t key_slot(const AttendParams& p, const Item& item, int k) {
    if (k >= item.key_end) return -1;
    if (item.selection != nullptr) return __ldg(item.selection + k);
    return slot_of(p.batch, item.blocks, k);
}

/// Whether the query at `pos` sees key `k` of an item. For a selection: whether there is one.
__device__ inline bool sees(const AttendParams& p, const Item& item, int pos, int k) {
    if (k >= item.key_end) return false;
    if (item.selection != nullptr) return __ldg(item.selection + k) >= 0;
    return k <= pos && (p.shape.window == 0 || pos - k < p.shape.window);
}

/// Product q . k to score * log2 e.
__device__ inline float score(const AttendParams& p, float product) {
    const float s = product * p.scale;
    return (p.softcap != 0 ? p.softcap * tanhf(s / p.softcap) : s) * kLog2E;
}

/// What the sums of a row become: out = factor * sum, and the log-sum-exp.
struct Finish {
    float factor, lse;
};
__device__ inline Finish finish(float largest, float total, const float* sinks, int head) {
    if (total == 0) return {0, ATTENTION_NEGATIVE_INFINITY};  // no key: zeros, whatever the sink
    float top = largest, factor = 1;
    if (sinks != nullptr) {
        const float sink = sinks[head] * kLog2E;
        top = fmaxf(largest, sink);
        factor = exp2f(largest - top);
        total = total * factor + exp2f(sink - top);
    }
    return {factor / total, (top + log2f(total)) * kLn2};
}

/// Where an item's sums of row r (counted from the item's first) go.
struct Target {
    std::int64_t out;      // offset in p.out, head included
    std::int64_t partial;  // row of the partial arrays
    int token, head;       // absolute token row, query head
};
__device__ inline Target target_of(const AttendParams& p, const Item& item, int r) {
    const int row = item.first_row + r;
    const int token = row / p.shape.group, head = item.kv_head * p.shape.group + row % p.shape.group;
    Target t;
    t.token = item.first_token + token;
    t.head = head;
    t.out = t.token * p.out.row_stride + head * p.out.head_stride;
    t.partial = ((std::int64_t{item.seq} * p.shape.max_splits + item.split * item.q_len + token) *
                     p.num_q_heads + head);
    return t;
}

}  // namespace attention::gpu
