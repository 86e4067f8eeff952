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

constexpr std::int64_t kLeastHeads = 8;  // a group is not cut into parts smaller than this
/// Query rows from which the rows of one of several key heads are copied together: they lie so far
/// apart that they would share a few sets of L1.
constexpr std::int64_t kCopyRows = 8;

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

std::int64_t rows_of(const Unit& unit, const Block& block) {
    return std::int64_t{unit.num_kv_heads} * block.num_tokens * unit.num_heads;
}

/// Calls body(r, row, head) for each row of a unit.
template <class Body>
void for_each_row(const Call& c, const Unit& unit, const Block& block, Body&& body) {
    std::int64_t r = 0;
    for (std::int64_t kv = unit.kv_head; kv < unit.kv_head + unit.num_kv_heads; ++kv)
        for (std::int64_t t = 0; t < block.num_tokens; ++t)
            for (std::int64_t h = 0; h < unit.num_heads; ++h)
                body(r++, block.first_row + t, kv * c.layer.group + unit.first_head + h);
}

void load_queries(const Call& c, const Unit& unit, const Block& block, const Scratch& s) {
    for_each_row(c, unit, block, [&](std::int64_t r, std::int64_t row, std::int64_t head) {
        float* to = s.query + r * c.key_pad;
        const float* q = sdk::at<float>(c.a.q, row, head);
        std::copy(q, q + c.layer.key_dim, to);
        std::fill(to + c.layer.key_dim, to + c.key_pad, 0.0F);
    });
}

/// The slots of keys [first, last) of the tile at `base`.
void load_slots(const Call& c, const Sequence& seq, const Span& span, std::int64_t base,
                std::int64_t first, std::int64_t last, std::int64_t* slot) {
    const std::int64_t page_tokens = c.in.cache.page_tokens;
    if (span.slots != nullptr) {
        std::copy(span.slots + base + first, span.slots + base + last, slot + first);
        return;
    }
    for (std::int64_t k = first; k < last;) {
        const std::int64_t begin = seq.slot(base + k, page_tokens);
        const std::int64_t in_page = std::min(last - k, page_tokens - (base + k) % page_tokens);
        for (std::int64_t i = 0; i < in_page; ++i) slot[k++] = begin + i;
    }
}

/// One plane of keys or values, as one head sees it.
struct Plane {
    const char* base;
    std::int64_t heads, dim, row_bytes, head_bytes;

    Plane(const Call& c, std::size_t plane, std::int64_t head_dim)
        : base{static_cast<const char*>(c.a.planes[plane])},
          heads{c.layer.num_kv_heads},
          dim{head_dim},
          row_bytes{heads * dim * sdk::dtype_bytes(c.in.cache.dtype)},
          head_bytes{dim * sdk::dtype_bytes(c.in.cache.dtype)} {}
    [[nodiscard]] const char* row(std::int64_t slot, std::int64_t head) const {
        return base + slot * row_bytes + head * head_bytes;
    }
};

/// The addresses of the rows of one head: in the pages where dtype and width allow it, else of f32
/// copies in `tile`. Copies pay, too, for many query rows over keys that lie far apart.
void load_rows(const Call& c, const Plane& plane, const std::int64_t* slot, std::int64_t first,
               std::int64_t last, std::int64_t head, bool has_many_rows, float* tile,
               const float** out) {
    const bool in_place = c.in.cache.dtype == ASSAY_F32 && plane.dim % kVector == 0 &&
                          (plane.heads == 1 || !has_many_rows);
    const std::int64_t pad = padded(plane.dim);
    for (std::int64_t k = first; k < last; ++k) {
        const char* row = plane.row(slot[k], head);
        if (in_place) {
            out[k] = reinterpret_cast<const float*>(row);
            continue;
        }
        float* copy = tile + k * pad;
        c.in.kernels->widen(c.in.cache.dtype, row, plane.dim, copy);
        std::fill(copy + plane.dim, copy + pad, 0.0F);
        out[k] = copy;
    }
}

/// What head `i` of a unit fetches while it works on a tile: its share of the keys of the next
/// tile, for all heads of the unit, whose rows lie side by side.
Prefetch next_rows(const Unit& unit, const Plane& key, const Plane& value, bool has_values,
                   const std::int64_t* slot, std::int64_t keys, std::int64_t i, const Scratch& s) {
    const std::int64_t begin = keys * i / unit.num_kv_heads;
    const std::int64_t end = keys * (i + 1) / unit.num_kv_heads;
    for (std::int64_t k = begin; k < end; ++k) {
        s.next_key[k - begin] = key.row(slot[k], unit.kv_head);
        s.next_value[k - begin] = value.row(slot[k], unit.kv_head);
    }
    return {s.next_key, has_values ? s.next_value : nullptr, end - begin,
            unit.num_kv_heads * key.head_bytes, unit.num_kv_heads * value.head_bytes};
}

/// Which keys of the tile at `base` each row sees.
void load_bounds(const Call& c, const Unit& unit, const Block& block, const Sequence& seq,
                 const Span& span, std::int64_t base, const Scratch& s) {
    for_each_row(c, unit, block, [&](std::int64_t r, std::int64_t row, std::int64_t) {
        const std::int64_t pos = seq.position(row);
        const std::int64_t begin = span.slots != nullptr ? span.begin : window_begin(c.layer, pos);
        const std::int64_t end = span.slots != nullptr ? span.end : pos + 1;
        s.begin[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(begin - base, 0, kTile));
        s.end[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(end - base, 0, kTile));
    });
}

/// Keys [kSplit * split, kSplit * (split + 1)) of a span, for all rows of a unit, into `partial`.
void attend_split(Call& c, const Unit& unit, const Block& block, const Sequence& seq,
                  const Span& span, std::int64_t split, const Scratch& s, const State& partial) {
    const std::int64_t rows = rows_of(unit, block), rows_of_head = rows / unit.num_kv_heads;
    std::fill(partial.max, partial.max + rows, -__builtin_inff());
    std::fill(partial.total, partial.total + rows, 0.0F);
    std::fill(partial.sum, partial.sum + rows * c.value_pad, 0.0F);

    const Plane key{c, 0, c.layer.key_dim}, value{c, c.layer.is_mla() ? 0U : 1U, c.layer.value_dim};
    const bool has_many_rows = rows_of_head >= kCopyRows;
    const std::int64_t split_end = std::min(span.end, (split + 1) * kSplit);
    std::int64_t* slot = s.slot;
    std::int64_t* next_slot = s.slot + kTile;
    for (std::int64_t base = split * kSplit; base < split_end; base += kTile) {
        const std::int64_t first = std::max<std::int64_t>(span.begin - base, 0);
        const std::int64_t last = std::min(split_end - base, kTile);
        if (first >= last) continue;
        load_slots(c, seq, span, base, first, last, slot);
        const std::int64_t num_next = std::clamp<std::int64_t>(span.end - base - kTile, 0, kTile);
        load_slots(c, seq, span, base + kTile, 0, num_next, next_slot);
        load_bounds(c, unit, block, seq, span, base, s);
        for (std::int64_t i = 0; i < unit.num_kv_heads; ++i) {
            const std::int64_t head = unit.kv_head + i;
            load_rows(c, key, slot, first, last, head, has_many_rows, s.key_tile, s.key);
            for (std::int64_t k = first / 4 * 4; k < first; ++k) s.key[k] = s.key[first];
            for (std::int64_t k = last; k % 4 != 0; ++k) s.key[k] = s.key[last - 1];
            if (!c.layer.is_mla())
                load_rows(c, value, slot, first, last, head, has_many_rows, s.value_tile, s.value);
            const Prefetch next =
                next_rows(unit, key, value, !c.layer.is_mla(), next_slot, num_next, i, s);
            const std::int64_t r = i * rows_of_head;
            c.in.kernels->attend(
                {rows_of_head,
                 c.key_pad,
                 c.value_pad,
                 s.query + r * c.key_pad,
                 s.key,
                 c.layer.is_mla() ? s.key : s.value,
                 s.begin + r,
                 s.end + r,
                 c.layer.scale,
                 c.layer.softcap,
                 s.score,
                 s.rescale,
                 {partial.max + r, partial.total + r, partial.sum + r * c.value_pad},
                 next});
        }
    }
}

void finish_unit(const Call& c, const Unit& unit, const Block& block, const State& state) {
    for_each_row(c, unit, block, [&](std::int64_t r, std::int64_t row, std::int64_t head) {
        c.in.kernels->finish(
            {c.layer.value_dim, c.layer.has_sinks ? sdk::at<float>(c.a.sinks, head) : nullptr,
             state.max[r], state.total[r], state.sum + r * c.value_pad,
             sdk::at<float>(c.a.out, row, head),
             c.a.lse.data != nullptr ? sdk::at<float>(c.a.lse, row, head) : nullptr});
    });
}

/// Tokens of a sequence go in blocks of as many rows as block_rows() says, or fewer where that
/// would leave workers idle; sparse ones go alone, since each has a selection of its own.
std::int64_t make_blocks(const Call& c, std::int64_t workers) {
    constexpr std::int64_t kLeastRows = 16;
    const std::int64_t tokens = end_row(*c.a.batch) - first_row(*c.a.batch);
    std::int64_t most = c.layer.is_sparse() ? 1 : block_rows(c.layer) / c.layer.group;
    while (workers > 1 && most * c.layer.group > kLeastRows && most > 1 &&
           tokens / most * c.layer.num_kv_heads < 4 * workers)
        most = (most + 1) / 2;
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
    const std::int64_t rows = rows_of(unit, block);
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
                c.in.kernels->merge(rows_of(unit, block), c.value_pad, c.w.states[u],
                                    c.w.partials[item - wave]);
            if (unit_end > wave && unit_end <= wave_end) finish_unit(c, unit, block, c.w.states[u]);
        });
    }
}

/// How the heads of a block are shared out.
struct Cut {
    std::int64_t kv_heads, kv_parts;  // key heads of a unit; units that make up all
    std::int64_t heads,
        group_parts;  // query heads of a group in a unit; units that make up a group
};

/// Key heads go together while the rows are few, so that a page is used up while it is near. They
/// are separated, and then a large group is cut, only for the sake of idle workers: each part of a
/// group reads the keys again.
Cut choose_cut(const Call& c, std::int64_t num_blocks, std::int64_t workers) {
    std::int64_t most_tokens = 0, most_splits = 1;
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        const Sequence seq = sequence(*c.a.batch, c.w.blocks[b].sequence);
        most_tokens = std::max<std::int64_t>(most_tokens, c.w.blocks[b].num_tokens);
        most_splits =
            std::max(most_splits, (span_bound(c, seq, c.w.blocks[b]) + kSplit - 1) / kSplit);
    }
    const auto parts = [](std::int64_t n, std::int64_t each) { return (n + each - 1) / each; };
    Cut cut{};
    cut.kv_heads = std::clamp<std::int64_t>(kTogetherRows / (most_tokens * c.layer.group), 1,
                                            c.layer.num_kv_heads);
    cut.heads = c.layer.group;
    const auto items = [&] {
        return num_blocks * parts(c.layer.num_kv_heads, cut.kv_heads) *
               parts(c.layer.group, cut.heads) * most_splits;
    };
    if (workers > 1) {
        while (cut.kv_heads > 1 && items() < workers) cut.kv_heads = (cut.kv_heads + 1) / 2;
        while (cut.heads >= 2 * kLeastHeads && items() < workers) cut.heads = (cut.heads + 1) / 2;
    }
    cut.kv_parts = parts(c.layer.num_kv_heads, cut.kv_heads);
    cut.group_parts = parts(c.layer.group, cut.heads);
    return cut;
}

}  // namespace

void run(const Instance& in, const Layer& layer, const assay_attn_args& a,
         const assay_stream& stream) {
    check_run(layer, in.cache, a);
    if (first_row(*a.batch) == end_row(*a.batch)) return;
    const Workspace w = open_workspace(in, *a.batch, a.workspace, a.workspace_bytes);
    Call c{in, layer, a, w};
    const std::int64_t workers =
        stream.lanes != nullptr ? std::min<std::int64_t>(in.max_workers, stream.lanes->width) : 1;

    const std::int64_t num_blocks = make_blocks(c, workers);
    const Cut cut = choose_cut(c, num_blocks, workers);
    const std::int64_t num_units = num_blocks * cut.kv_parts * cut.group_parts;
    const auto unit_at = [&](std::int64_t i) {
        const std::int64_t part = i % cut.group_parts * cut.heads;
        const std::int64_t kv_head = i / cut.group_parts % cut.kv_parts * cut.kv_heads;
        Unit unit{};
        unit.block = static_cast<std::int32_t>(i / cut.group_parts / cut.kv_parts);
        unit.kv_head = static_cast<std::int32_t>(kv_head);
        unit.num_kv_heads =
            static_cast<std::int32_t>(std::min(cut.kv_heads, layer.num_kv_heads - kv_head));
        unit.first_head = static_cast<std::int32_t>(part);
        unit.num_heads = static_cast<std::int32_t>(std::min(cut.heads, layer.group - part));
        return unit;
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
