// run(): the queries of a call are cut into blocks of tokens; a block meets one key head at a time,
// tile by tile, so that a page is read once for all rows that share it. With many blocks each is an
// item that walks its splits in order. With few (decode of a few sequences) the splits are items of
// their own, and what they leave is merged in the same order. Both give the same bits.

#include "workspace.hpp"

#include <algorithm>
#include <atomic>
#include <string>

namespace attention::flash {
namespace {

/// One run() call.
struct Call {
    const Instance& in;
    const Layer& layer;
    const assay_attn_args& a;
    const Workspace& w;
    std::int64_t key_pad, value_pad;
    std::atomic<std::int64_t> bad_row{-1};  // of topk_slots

    Call(const Instance& instance, const Layer& l, const assay_attn_args& args,
         const Workspace& work)
        : in{instance},
          layer{l},
          a{args},
          w{work},
          key_pad{padded(l.key_dim)},
          value_pad{padded(l.value_dim)} {}
};

/// The keys that a block of rows meets: positions (dense) or places in a list of slots (sparse).
struct Span {
    std::int64_t begin, end;
    const std::int32_t* slots;  // null: dense
};

std::int64_t window_begin(const Layer& layer, std::int64_t pos) {
    return layer.window != 0 ? std::max<std::int64_t>(0, pos - layer.window + 1) : 0;
}

/// Positions from the first that the first token sees to the last that the last token sees.
Span dense_span(const Layer& layer, const Sequence& seq, const Block& block) {
    return {window_begin(layer, seq.position(block.first_row)),
            seq.position(block.first_row + block.num_tokens - 1) + 1, nullptr};
}

Span sparse_span(Call& c, const Sequence& seq, const Block& block, const Scratch& s) {
    const std::int64_t n = selected_slots(sdk::at<std::int32_t>(c.a.topk_slots, block.first_row),
                                          c.layer.index_topk, seq, seq.position(block.first_row),
                                          c.in.cache.page_tokens, s.slots, s.sorted);
    if (n < 0) c.bad_row.store(block.first_row, std::memory_order_relaxed);
    return {0, std::max<std::int64_t>(n, 0), s.slots};
}

/// The most keys a block can meet, without reading its selection.
std::int64_t span_bound(const Call& c, const Sequence& seq, const Block& block) {
    const std::int64_t end = dense_span(c.layer, seq, block).end;
    return c.layer.is_sparse() ? std::min(end, c.layer.index_topk) : end;
}

void load_queries(const Call& c, const Unit& unit, const Block& block, const Scratch& s) {
    float* row = s.query;
    for (std::int64_t t = 0; t < block.num_tokens; ++t)
        for (std::int64_t h = 0; h < unit.num_heads; ++h, row += c.key_pad) {
            const float* q = sdk::at<float>(c.a.q, block.first_row + t, unit.first_head + h);
            std::copy(q, q + c.layer.key_dim, row);
            std::fill(row + c.layer.key_dim, row + c.key_pad, 0.0F);
        }
}

/// The addresses of the entries of one head in keys [first, last) of a span's tile at `base`: in
/// the pages where their dtype and width allow it, else of f32 copies in `tile`.
void load_rows(const Call& c, const Sequence& seq, const Span& span, std::int64_t base,
               std::int64_t first, std::int64_t last, const void* plane, std::int64_t heads,
               std::int64_t head, std::int64_t dim, float* tile, const float** out) {
    const bool in_place = c.in.cache.dtype == ASSAY_F32 && dim % kVector == 0;
    const std::int64_t element = sdk::dtype_bytes(c.in.cache.dtype);
    for (std::int64_t k = first; k < last; ++k) {
        const std::int64_t slot = span.slots != nullptr
                                      ? std::int64_t{span.slots[base + k]}
                                      : seq.slot(base + k, c.in.cache.page_tokens);
        const char* row = static_cast<const char*>(plane) + (slot * heads + head) * dim * element;
        if (in_place) {
            out[k] = reinterpret_cast<const float*>(row);
            continue;
        }
        float* copy = tile + k * padded(dim);
        c.in.kernels->widen(c.in.cache.dtype, row, dim, copy);
        std::fill(copy + dim, copy + padded(dim), 0.0F);
        out[k] = copy;
    }
}

/// Keys [kSplit * split, kSplit * (split + 1)) of a span, for all rows of a unit, into `partial`.
void attend_split(Call& c, const Unit& unit, const Block& block, const Sequence& seq,
                  const Span& span, std::int64_t split, const Scratch& s, const State& partial) {
    const std::int64_t rows = std::int64_t{block.num_tokens} * unit.num_heads;
    std::fill(partial.max, partial.max + rows, -__builtin_inff());
    std::fill(partial.total, partial.total + rows, 0.0F);
    std::fill(partial.sum, partial.sum + rows * c.value_pad, 0.0F);

    const std::int64_t split_end = std::min(span.end, (split + 1) * kSplit);
    for (std::int64_t base = split * kSplit; base < split_end; base += kTile) {
        const std::int64_t first = std::max<std::int64_t>(span.begin - base, 0);
        const std::int64_t last = std::min(split_end - base, kTile);
        if (first >= last) continue;
        load_rows(c, seq, span, base, first, last, c.a.planes[0], c.layer.num_kv_heads,
                  unit.kv_head, c.layer.key_dim, s.key_tile, s.key);
        for (std::int64_t k = first / 4 * 4; k < first; ++k) s.key[k] = s.key[first];
        for (std::int64_t k = last; k % 4 != 0; ++k) s.key[k] = s.key[last - 1];
        const float** value = s.key;
        if (!c.layer.is_mla()) {
            load_rows(c, seq, span, base, first, last, c.a.planes[1], c.layer.num_kv_heads,
                      unit.kv_head, c.layer.value_dim, s.value_tile, s.value);
            value = s.value;
        }
        for (std::int64_t r = 0; r < rows; ++r) {
            std::int64_t begin = span.begin, end = span.end;
            if (span.slots == nullptr) {
                const std::int64_t pos = seq.position(block.first_row + r / unit.num_heads);
                begin = window_begin(c.layer, pos);
                end = pos + 1;
            }
            s.begin[r] =
                static_cast<std::int32_t>(std::clamp<std::int64_t>(begin - base, 0, kTile));
            s.end[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(end - base, 0, kTile));
        }
        c.in.kernels->attend({rows, c.key_pad, c.value_pad, s.query, s.key, value, s.begin, s.end,
                              c.layer.scale, c.layer.softcap, s.score, s.rescale, partial});
    }
}

void finish_unit(const Call& c, const Unit& unit, const Block& block, const State& state) {
    for (std::int64_t t = 0, r = 0; t < block.num_tokens; ++t)
        for (std::int64_t h = 0; h < unit.num_heads; ++h, ++r) {
            const std::int64_t row = block.first_row + t, head = unit.first_head + h;
            c.in.kernels->finish(
                {c.layer.value_dim, c.layer.has_sinks ? sdk::at<float>(c.a.sinks, head) : nullptr,
                 state.max[r], state.total[r], state.sum + r * c.value_pad,
                 sdk::at<float>(c.a.out, row, head),
                 c.a.lse.data != nullptr ? sdk::at<float>(c.a.lse, row, head) : nullptr});
        }
}

/// Tokens of a sequence go in blocks of about kBlockRows rows; sparse ones alone, since each has a
/// selection of its own.
std::int64_t make_blocks(const Call& c) {
    const std::int64_t most =
        c.layer.is_sparse() ? 1 : std::max<std::int64_t>(1, kBlockRows / c.layer.group);
    std::int64_t n = 0;
    for (std::int32_t i = 0; i < c.a.batch->num_seqs; ++i) {
        const Sequence seq = sequence(*c.a.batch, i);
        for (std::int64_t t = 0; t < seq.q_len; t += most)
            c.w.blocks[n++] = {i, static_cast<std::int32_t>(seq.first_row + t),
                               static_cast<std::int32_t>(std::min(most, seq.q_len - t))};
    }
    return n;
}

/// A unit from start to end: every split in order, then the result.
void run_unit(Call& c, const Unit& unit, const Scratch& s) {
    const Block& block = c.w.blocks[unit.block];
    const Sequence seq = sequence(*c.a.batch, block.sequence);
    const std::int64_t rows = std::int64_t{block.num_tokens} * unit.num_heads;
    const Span span =
        c.layer.is_sparse() ? sparse_span(c, seq, block, s) : dense_span(c.layer, seq, block);
    load_queries(c, unit, block, s);
    std::fill(s.state.total, s.state.total + rows, 0.0F);
    for (std::int64_t split = span.begin / kSplit; split * kSplit < span.end; ++split) {
        attend_split(c, unit, block, seq, span, split, s, s.partial);
        c.in.kernels->merge(rows, c.value_pad, s.state, s.partial);
    }
    finish_unit(c, unit, block, s.state);
}

/// Units small in number: their splits are items, taken in waves of as many as there are partial
/// states; after each wave the units fold what it left, in order.
void run_splits(Call& c, std::int64_t num_units, std::int64_t workers, const assay_lanes* lanes) {
    const std::int64_t num_items =
        c.w.units[num_units - 1].first_item + c.w.units[num_units - 1].num_splits;
    for (std::int64_t u = 0; u < num_units; ++u)
        std::fill(c.w.states[u].total, c.w.states[u].total + c.in.max_rows, 0.0F);
    for (std::int64_t wave = 0; wave < num_items; wave += c.w.max_partials) {
        const std::int64_t wave_end = std::min(num_items, wave + c.w.max_partials);
        for_each_item(lanes, wave_end - wave, workers, [&](std::int64_t i, std::int64_t worker) {
            const std::int64_t item = wave + i;
            const Unit* unit = c.w.units + num_units - 1;
            while (unit->first_item > item) --unit;
            const Scratch& s = c.w.workers[worker];
            const Block& block = c.w.blocks[unit->block];
            const Sequence seq = sequence(*c.a.batch, block.sequence);
            const Span span = c.layer.is_sparse() ? sparse_span(c, seq, block, s)
                                                  : dense_span(c.layer, seq, block);
            load_queries(c, *unit, block, s);
            attend_split(c, *unit, block, seq, span, unit->first_split + item - unit->first_item, s,
                         c.w.partials[i]);
        });
        for_each_item(lanes, num_units, workers, [&](std::int64_t u, std::int64_t) {
            const Unit& unit = c.w.units[u];
            const Block& block = c.w.blocks[unit.block];
            const std::int64_t unit_end = unit.first_item + unit.num_splits;
            for (std::int64_t item = std::max(wave, unit.first_item);
                 item < std::min(wave_end, unit_end); ++item)
                c.in.kernels->merge(std::int64_t{block.num_tokens} * unit.num_heads, c.value_pad,
                                    c.w.states[u], c.w.partials[item - wave]);
            if (unit_end > wave && unit_end <= wave_end) finish_unit(c, unit, block, c.w.states[u]);
        });
    }
}

}  // namespace

void run(const Instance& in, const Layer& layer, const assay_attn_args& a,
         const assay_stream& stream) {
    check_run(layer, in.cache, a);
    if (first_row(*a.batch) == end_row(*a.batch)) return;
    const Workspace w = open_workspace(in, *a.batch, a.workspace, a.workspace_bytes);
    Call c{in, layer, a, w};
    const std::int64_t num_blocks = make_blocks(c);
    const std::int64_t workers =
        stream.lanes != nullptr ? std::min<std::int64_t>(in.max_workers, stream.lanes->width) : 1;

    // A group of many heads is cut for the sake of the other workers, but not below a few rows:
    // each part reads the keys again.
    constexpr std::int64_t kLeastHeads = 8;
    std::int64_t heads = layer.group;
    while (workers > 1 && heads >= 2 * kLeastHeads &&
           num_blocks * layer.num_kv_heads * ((layer.group + heads - 1) / heads) < workers)
        heads = (heads + 1) / 2;
    const std::int64_t parts = (layer.group + heads - 1) / heads;
    const std::int64_t num_units = num_blocks * layer.num_kv_heads * parts;
    const auto unit_at = [&](std::int64_t i) {
        const std::int64_t part = i % parts, kv_head = i / parts % layer.num_kv_heads;
        return Unit{static_cast<std::int32_t>(i / parts / layer.num_kv_heads),
                    static_cast<std::int32_t>(kv_head),
                    static_cast<std::int32_t>(kv_head * layer.group + part * heads),
                    static_cast<std::int32_t>(std::min(heads, layer.group - part * heads)),
                    0,
                    0,
                    0};
    };

    bool has_splits = false;
    if (workers > 1 && num_units <= w.max_units) {
        std::int64_t items = 0;
        for (std::int64_t u = 0; u < num_units; ++u) {
            Unit& unit = w.units[u] = unit_at(u);
            const Block& block = w.blocks[unit.block];
            const Sequence seq = sequence(*a.batch, block.sequence);
            unit.first_split = layer.is_sparse() ? 0 : dense_span(layer, seq, block).begin / kSplit;
            unit.num_splits = (span_bound(c, seq, block) + kSplit - 1) / kSplit - unit.first_split;
            unit.first_item = items;
            items += unit.num_splits;
            has_splits = has_splits || unit.num_splits > 1;
        }
    }
    if (has_splits) {
        run_splits(c, num_units, workers, stream.lanes);
    } else {
        // The last blocks of a prompt see the most keys: they go first.
        for_each_item(stream.lanes, num_units, workers, [&](std::int64_t i, std::int64_t worker) {
            run_unit(c, unit_at(num_units - 1 - i), w.workers[worker]);
        });
    }
    if (c.bad_row.load() >= 0) fail_selection(c.bad_row.load());
}

}  // namespace attention::flash
