#pragma once

// The parts of a workspace. The same function counts bytes and hands out pointers, so that the two
// cannot disagree.

#include "run.hpp"

#include <algorithm>
#include <cstdint>

namespace attention::flash {

/// Hands out 64-byte aligned arrays from a base, or only counts when the base is null.
class Carver {
public:
    explicit Carver(void* base) : base_{static_cast<char*>(base)} {}

    template <class T>
    T* take(std::int64_t n) {
        char* at = base_ != nullptr ? base_ + used_ : nullptr;
        used_ += (n * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
        return reinterpret_cast<T*>(at);
    }
    [[nodiscard]] std::int64_t used() const noexcept { return used_; }

private:
    char* base_;
    std::int64_t used_ = 0;
};

inline State take_state(Carver& carver, const Instance& in) {
    return {carver.take<float>(in.max_rows), carver.take<float>(in.max_rows),
            carver.take<float>(in.max_rows * in.value_pad)};
}

/// One worker's own memory.
struct Scratch {
    float* query;         // [max_rows, key_pad], or [index_heads, index_pad]
    float* key_tile;      // [kTile, key_pad or index_pad]; used when pages cannot be read in place
    float* value_tile;    // [kTile, value_pad]
    float* score;         // [max_rows or index_heads, kTile]
    float* rescale;       // [max_rows]
    const float** key;    // [kTile]
    const float** value;  // [kTile]
    std::int64_t* slot;   // [2, kTile] of this tile and the next
    const char** next_key;    // [kTile]
    const char** next_value;  // [kTile]
    std::int32_t* begin;      // [max_rows]
    std::int32_t* end;        // [max_rows]
    std::int32_t* slots;      // [topk]
    std::int32_t* sorted;     // [topk]
    std::uint32_t* order;     // [max_kv_len] of index layers
    State partial, state;
};

inline Scratch take_scratch(Carver& carver, const Instance& in) {
    const std::int64_t key_pad = std::max(in.key_pad, in.index_pad);
    Scratch s{};
    s.query = carver.take<float>(std::max(in.max_rows * in.key_pad, in.index_heads * in.index_pad));
    s.key_tile = carver.take<float>(kTile * key_pad);
    s.value_tile = carver.take<float>(kTile * in.value_pad);
    s.score = carver.take<float>(std::max(in.max_rows, in.index_heads) * kTile);
    s.rescale = carver.take<float>(in.max_rows);
    s.key = carver.take<const float*>(kTile);
    s.value = carver.take<const float*>(kTile);
    s.slot = carver.take<std::int64_t>(2 * kTile);
    s.next_key = carver.take<const char*>(kTile);
    s.next_value = carver.take<const char*>(kTile);
    s.begin = carver.take<std::int32_t>(in.max_rows);
    s.end = carver.take<std::int32_t>(in.max_rows);
    s.slots = carver.take<std::int32_t>(in.topk);
    s.sorted = carver.take<std::int32_t>(in.topk);
    s.order = carver.take<std::uint32_t>(in.index_heads > 0 ? in.limits.max_kv_len : 0);
    s.partial = take_state(carver, in);
    s.state = take_state(carver, in);
    return s;
}

/// Consecutive tokens of one sequence.
struct Block {
    std::int32_t sequence, first_row, num_tokens;
};

/// A block of tokens and key heads [kv_head, kv_head + num_kv_heads), with num_heads query heads
/// each from `first_head` of the group on. Its rows go key head by key head, then token by token.
struct Unit {
    std::int32_t block, kv_head, num_kv_heads, first_head, num_heads;
    std::int64_t first_split, num_splits, first_item;  // in split mode
};

/// Everything. Parts: `units` are for the split mode of run(), `scores` for index().
struct Workspace {
    Block* blocks;     // [max_tokens + max_seqs]
    Unit* units;       // [max_units]
    State* states;     // [max_units] the units' sums over the splits merged so far
    State* partials;   // [max_partials] one split each
    float* scores;     // [index_wave, max_kv_len]
    Scratch* workers;  // [max_workers]
    std::int64_t max_units, max_partials, index_wave;
};

inline Workspace take_workspace(Carver& carver, const Instance& in) {
    Workspace w{};
    w.max_units = w.max_partials = in.max_workers > 1 ? 2 * in.max_workers : 0;
    w.index_wave = in.index_heads > 0 ? std::min(4 * in.max_workers,
                                                 std::max<std::int64_t>(in.limits.max_tokens, 1))
                                      : 0;
    w.blocks = carver.take<Block>(in.limits.max_tokens + in.limits.max_seqs);
    w.units = carver.take<Unit>(w.max_units);
    w.states = carver.take<State>(w.max_units);
    w.partials = carver.take<State>(w.max_partials);
    w.workers = carver.take<Scratch>(in.max_workers);
    w.scores = carver.take<float>(w.index_wave * padded(in.limits.max_kv_len + kTile));
    for (std::int64_t i = 0; i < w.max_units; ++i) {
        const State s = take_state(carver, in);
        if (w.states != nullptr) w.states[i] = s;
    }
    for (std::int64_t i = 0; i < w.max_partials; ++i) {
        const State s = take_state(carver, in);
        if (w.partials != nullptr) w.partials[i] = s;
    }
    for (std::int64_t i = 0; i < in.max_workers; ++i) {
        const Scratch s = take_scratch(carver, in);
        if (w.workers != nullptr) w.workers[i] = s;
    }
    return w;
}

/// Throws INVALID when a workspace or a batch is not what sizes() was told.
Workspace open_workspace(const Instance& in, const assay_attn_batch& batch, void* base,
                         std::uint64_t bytes);

}  // namespace attention::flash
