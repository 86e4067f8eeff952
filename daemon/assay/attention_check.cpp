// OpChecker: what attention plugins store, choose and compute.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "cxx/plugin.hpp"
#include "daemon/assay/op_checker.hpp"
#include "daemon/base/error.hpp"
#include "reference/attention.hpp"

namespace assay {
namespace {

/// What one rounding to the cache's dtype costs, relative to the value.
double unit_of(std::int32_t dtype) {
    switch (dtype) {
        case ASSAY_F16: return 0x1p-11;
        case ASSAY_BF16: return 0x1p-8;
        case ASSAY_F8_E4M3: return 0x1p-4;
        case ASSAY_F8_E5M2: return 0x1p-3;
        default: return kUnit;
    }
}

double norm(const float* x, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
    return std::sqrt(sum);
}

std::int32_t plane_index(const assay_kv_layout& layout, std::string_view name) {
    for (std::uint32_t p = 0; p < layout.num_planes; ++p)
        if (name == layout.planes[p].name) return static_cast<std::int32_t>(p);
    return -1;
}

}  // namespace

/// The sequences of a batch, on the host.
struct OpChecker::Sequences {
    const assay_attn_batch& batch;
    std::int32_t page_tokens;
    std::vector<std::int32_t> table;  // [num_seqs, max_blocks]

    Sequences(const OpChecker& c, const assay_attn_batch& b, const assay_kv_layout& layout)
        : batch{b},
          page_tokens{static_cast<std::int32_t>(layout.page_tokens)},
          table{host_ints(b.block_table, static_cast<std::int64_t>(b.num_seqs) * b.max_blocks, c.device_, c.stream_)} {}

    [[nodiscard]] std::int32_t slot(std::int32_t seq, std::int64_t position) const {
        const auto block = static_cast<std::int64_t>(seq) * batch.max_blocks + position / page_tokens;
        return table[static_cast<std::size_t>(block)] * page_tokens + static_cast<std::int32_t>(position % page_tokens);
    }
    [[nodiscard]] std::vector<std::int32_t> slots(std::int32_t seq) const {
        std::vector<std::int32_t> out;
        for (std::int32_t p = 0; p < batch.host_kv_len[seq]; ++p) out.push_back(slot(seq, p));
        return out;
    }
    [[nodiscard]] std::int64_t first_row(std::int32_t seq) const { return batch.host_cu_q[seq]; }
    [[nodiscard]] std::int64_t num_rows(std::int32_t seq) const { return batch.host_cu_q[seq + 1] - batch.host_cu_q[seq]; }
    /// Position of row `r` of the step.
    [[nodiscard]] std::int64_t position(std::int32_t seq, std::int64_t r) const {
        return batch.host_kv_len[seq] - num_rows(seq) + (r - first_row(seq));
    }
    /// Rows of the call, without those before and behind it.
    [[nodiscard]] assay_tensor rows_of(assay_tensor t) const {
        if (t.data == nullptr) return t;
        const std::int64_t first = batch.host_cu_q[0];
        t.data = static_cast<char*>(t.data) + first * t.stride[0] * sdk::dtype_bytes(t.dtype);
        t.shape[0] = batch.host_cu_q[batch.num_seqs] - first;
        return t;
    }
};

std::vector<float> OpChecker::cached(const plugin::Attention& plugin, std::uint32_t layer, std::uint32_t plane,
                                     void* const planes[ASSAY_MAX_PLANES], const std::vector<std::int32_t>& slots) const {
    const std::uint32_t width = layouts_[layer].planes[plane].width;
    const auto count = static_cast<std::int64_t>(slots.size());
    std::vector<float> host(slots.size() * width);
    if (count == 0) return host;
    const plugin::Buffer ids = device_.alloc(slots.size() * sizeof(std::int32_t));
    const plugin::Buffer out = device_.alloc(host.size() * sizeof(float));
    device_.copy(ids.data(), slots.data(), ids.bytes(), stream_);
    const assay_tensor tensor = sdk::make_tensor(out.data(), ASSAY_F32, count, width);
    assay_error err = sdk::make_error();
    if (plugin.api().kv_read(plugin.self(), layer, plane, planes, ids.as<std::int32_t>(), count, &tensor, stream_.get(), &err) != ASSAY_OK)
        throw base::AssayError{"attention plugin \"" + plugin.id() + "\", kv_read: " + err.text};
    device_.copy(host.data(), out.data(), out.bytes(), stream_);
    stream_.sync();
    return host;
}

assay_status OpChecker::append(const Site& site, const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args,
                               assay_error* err) {
    announce(site, plugin.id());
    const auto begin = Clock::now();
    const assay_kv_layout& layout = layouts_[layer];
    const Sequences seqs{*this, *args.batch, layout};
    const assay_status status = plugin.api().append(plugin.self(), layer, &args, stream_.get(), err);
    if (status != ASSAY_OK) return status;
    stream_.sync();

    const assay_tensor given[] = {args.k, args.v, args.index_k};
    const bool is_gqa = layers_[layer].attn_class == ASSAY_ATTN_GQA;
    const std::int32_t planes[] = {plane_index(layout, is_gqa ? "k" : "latent"), is_gqa ? plane_index(layout, "v") : -1,
                                   layers_[layer].index_role == ASSAY_INDEX_FULL ? plane_index(layout, "index_k") : -1};
    const std::int64_t first = args.batch->host_cu_q[0], count = args.batch->host_cu_q[args.batch->num_seqs] - first;
    const auto slot_map = host_ints(args.batch->slot_map + first, count, device_, stream_);
    Tally tally;
    for (int p = 0; p < 3; ++p) {
        if (planes[p] < 0) continue;
        const HostTensor want = read(seqs.rows_of(given[p]));
        std::vector<std::int64_t> rows;
        std::vector<std::int32_t> slots;
        for (const std::int64_t r : pick(count, 8 * sampling_.max_rows)) {
            if (slot_map[static_cast<std::size_t>(r)] < 0) continue;
            rows.push_back(r);
            slots.push_back(slot_map[static_cast<std::size_t>(r)]);
        }
        const auto plane = static_cast<std::uint32_t>(planes[p]);
        const std::vector<float> got = cached(plugin, layer, plane, args.planes, slots);
        const double unit = layout.planes[plane].dtype == ASSAY_F32 ? 0.0 : unit_of(layout.planes[plane].dtype);
        const std::int64_t width = layout.planes[plane].width;
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (std::int64_t c = 0; c < width; ++c) {
                const std::int64_t inner = want.shape().rank == 3 ? want.size(2) : width;
                const double value = double{want.shape().rank == 3 ? want.at(rows[i], c / inner, c % inner) : want.at(rows[i], c)};
                tally.add(got[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)],
                          {value, unit * (std::fabs(value) + 0x1p-14)}, rows[i], c);
            }
    }
    report(site, plugin.id(), {}, std::move(tally), begin);
    return ASSAY_OK;
}

assay_status OpChecker::index(const Site& site, const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_index_args& args,
                              assay_error* err) {
    announce(site, plugin.id());
    const auto begin = Clock::now();
    const assay_attn_layer& shape = layers_[layer];
    const Sequences seqs{*this, *args.batch, layouts_[layer]};
    const std::int64_t heads = shape.index_n_heads, dim = shape.index_head_dim, topk = shape.index_topk;
    const assay_tensor out = seqs.rows_of(args.topk_slots);
    const HostTensor before = take(out), q = read(seqs.rows_of(args.q)), weight = read(seqs.rows_of(args.head_weight));
    const assay_status status = plugin.api().index(plugin.self(), layer, &args, stream_.get(), err);
    if (status != ASSAY_OK) return status;

    // -1 is both padding and the sentinel: a row that was not written is one that chose nothing.
    const HostTensor got = read(out);
    Tally tally;
    if (!got.equals_outside(before)) tally.fail("elements between the rows of topk_slots were overwritten");
    const auto plane = static_cast<std::uint32_t>(plane_index(layouts_[layer], "index_k"));
    const double unit = unit_of(layouts_[layer].planes[plane].dtype);
    for (std::int32_t seq = 0; seq < args.batch->num_seqs; ++seq) {
        if (seqs.num_rows(seq) == 0) continue;
        const std::vector<std::int32_t> slots = seqs.slots(seq);
        const std::vector<float> keys = cached(plugin, layer, plane, args.planes, slots);
        double key_norm = 0;
        for (std::size_t i = 0; i < slots.size(); ++i)
            key_norm = std::max(key_norm, norm(keys.data() + static_cast<std::int64_t>(i) * dim, dim));
        for (const std::int64_t j : pick(seqs.num_rows(seq), sampling_.max_rows)) {
            const std::int64_t row = seqs.first_row(seq) + j, in_call = row - args.batch->host_cu_q[0];
            const std::int64_t visible = seqs.position(seq, row) + 1, chosen = std::min(visible, topk);
            std::vector<float> query(static_cast<std::size_t>(heads * dim));
            double size = 0;  // of a score's terms
            for (std::int64_t h = 0; h < heads; ++h) {
                std::copy_n(q.row(in_call, h), dim, query.begin() + h * dim);
                size += std::fabs(double{weight.at(in_call, h)}) * norm(q.row(in_call, h), dim) * key_norm;
            }
            std::vector<double> score(static_cast<std::size_t>(visible));
            sdk::reference::index_scores(query.data(), keys.data(), weight.row(in_call), 1, visible, heads, dim, score.data());
            std::vector<std::int32_t> want(static_cast<std::size_t>(topk));
            sdk::reference::index_topk(score.data(), visible, topk, want.data());
            double least = std::numeric_limits<double>::infinity();
            for (std::int64_t i = 0; i < chosen; ++i) least = std::min(least, score[static_cast<std::size_t>(want[static_cast<std::size_t>(i)])]);
            // Scores that rounding cannot tell apart may change places.
            const double near = 2 * Tally::kMaxSigmas * unit * (std::sqrt(static_cast<double>(dim)) + std::sqrt(static_cast<double>(heads)) + 2) * size;

            const std::string who = "query at position " + std::to_string(visible - 1);
            std::vector<bool> seen(static_cast<std::size_t>(visible), false);
            std::int64_t count = 0;
            for (std::int64_t i = 0; i < topk; ++i) {
                const std::int32_t slot = got.int_at(in_call, i);
                if (slot == -1) continue;
                const auto at = std::find(slots.begin(), slots.begin() + visible, slot);
                if (at == slots.begin() + visible) {
                    tally.fail(who + " chose slot " + std::to_string(slot) + ", which holds none of its keys");
                    continue;
                }
                const auto position = static_cast<std::size_t>(at - slots.begin());
                if (seen[position]) tally.fail(who + " chose position " + std::to_string(position) + " twice");
                seen[position] = true;
                ++count;
                if (!(score[position] >= least - near))
                    tally.fail(who + " chose position " + std::to_string(position) + ", which scores " + std::to_string(score[position]) +
                               "; the least of the best " + std::to_string(chosen) + " scores " + std::to_string(least));
            }
            if (count != chosen)
                tally.fail(who + " chose " + std::to_string(count) + " positions, expected " + std::to_string(chosen));
            tally.add(0, {0, 0}, row, 0);
        }
    }
    report(site, plugin.id(), {}, std::move(tally), begin);
    return ASSAY_OK;
}

assay_status OpChecker::attend(const Site& site, const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args,
                               assay_error* err) {
    announce(site, plugin.id());
    const auto begin = Clock::now();
    const assay_attn_layer& shape = layers_[layer];
    const assay_kv_layout& layout = layouts_[layer];
    const Sequences seqs{*this, *args.batch, layout};
    const bool is_mla = shape.attn_class != ASSAY_ATTN_GQA, is_sparse = shape.index_role != ASSAY_INDEX_NONE;
    const std::int64_t heads = shape.num_q_heads, kv_heads = is_mla ? 1 : shape.num_kv_heads;
    const std::int64_t dim = is_mla ? shape.kv_lora_rank + shape.qk_rope_head_dim : shape.head_dim;
    const std::int64_t v_dim = is_mla ? shape.kv_lora_rank : shape.v_head_dim;

    const assay_tensor out = seqs.rows_of(args.out);
    const HostTensor before = take(out), q = read(seqs.rows_of(args.q));
    const HostTensor topk = is_sparse ? read(seqs.rows_of(args.topk_slots)) : HostTensor{};
    const HostTensor sinks = shape.has_sinks ? read(args.sinks) : HostTensor{};
    const assay_status status = plugin.api().run(plugin.self(), layer, &args, stream_.get(), err);
    if (status != ASSAY_OK) return status;
    const HostTensor after = read(out);
    Tally tally;
    check_written(before, after, tally);

    const auto key_plane = static_cast<std::uint32_t>(plane_index(layout, is_mla ? "latent" : "k"));
    const double unit = unit_of(layout.planes[key_plane].dtype);
    for (std::int32_t seq = 0; seq < args.batch->num_seqs; ++seq) {
        if (seqs.num_rows(seq) == 0) continue;
        const std::vector<std::int32_t> slots = seqs.slots(seq);
        const std::vector<float> keys = cached(plugin, layer, key_plane, args.planes, slots);
        std::vector<float> values;
        if (!is_mla) values = cached(plugin, layer, static_cast<std::uint32_t>(plane_index(layout, "v")), args.planes, slots);
        struct Item {
            std::int64_t row, head;
        };
        std::vector<Item> items;
        for (const std::int64_t j : pick(seqs.num_rows(seq), sampling_.max_rows))
            for (const std::int64_t h : pick(heads, sampling_.max_heads)) items.push_back({seqs.first_row(seq) + j, h});

        std::vector<Tally> tallies(items.size());
        sdk::parallel_for(definition_.lanes(), static_cast<std::int64_t>(items.size()), [&](std::uint32_t i, std::uint32_t) {
            const std::int64_t row = items[i].row, h = items[i].head, in_call = row - args.batch->host_cu_q[0];
            const std::int64_t position = seqs.position(seq, row), kv_head = h / (heads / kv_heads);
            // The keys that this query may see, one behind the other; a selection makes a shorter sequence.
            std::vector<std::int64_t> visible;
            if (is_sparse) {
                for (std::int64_t k = 0; k < shape.index_topk; ++k) {
                    const auto at = std::find(slots.begin(), slots.begin() + position + 1, topk.int_at(in_call, k));
                    if (topk.int_at(in_call, k) >= 0 && at != slots.begin() + position + 1) visible.push_back(at - slots.begin());
                }
            } else {
                for (std::int64_t p = 0; p <= position; ++p) visible.push_back(p);
            }
            const auto n = static_cast<std::int64_t>(visible.size());
            std::vector<float> k(static_cast<std::size_t>(n * dim)), v(static_cast<std::size_t>(n * v_dim)), size(v);
            double key_norm = 0;
            for (std::int64_t s = 0; s < n; ++s) {
                const float* key = keys.data() + (visible[static_cast<std::size_t>(s)] * kv_heads + kv_head) * dim;
                const float* value =
                    is_mla ? key : values.data() + (visible[static_cast<std::size_t>(s)] * kv_heads + kv_head) * v_dim;
                std::copy_n(key, dim, k.begin() + s * dim);
                std::copy_n(value, v_dim, v.begin() + s * v_dim);
                std::transform(value, value + v_dim, size.begin() + s * v_dim, [](float x) { return std::fabs(x); });
                key_norm = std::max(key_norm, norm(key, dim));
            }
            sdk::reference::Softmax softmax{shape.softmax_scale, shape.logit_softcap, shape.window, nullptr};
            const float sink = shape.has_sinks ? sinks.at(h) : 0.0F;
            if (shape.has_sinks) softmax.sinks = &sink;
            std::vector<float> want(static_cast<std::size_t>(v_dim)), spread(want);
            sdk::reference::gqa_attention(q.row(in_call, h), k.data(), v.data(), 1, n, 1, 1, dim, v_dim, softmax, want.data(), nullptr);
            sdk::reference::gqa_attention(q.row(in_call, h), k.data(), size.data(), 1, n, 1, 1, dim, v_dim, softmax, spread.data(), nullptr);
            // A score is an f32 sum over dim of operands rounded to the cache's dtype; a relative error of
            // every weight moves a weighted mean by at most twice that share of the mean of magnitudes.
            const double q_norm = norm(q.row(in_call, h), dim), root = std::sqrt(static_cast<double>(dim));
            const double score = double{shape.softmax_scale} * q_norm * key_norm * (kUnit * (root + 6) + (unit > kUnit ? 2 * unit / root : 0.0)) +
                                 8 * kUnit * double{shape.logit_softcap};
            const double weight = score + kUnit * (8 + std::sqrt(static_cast<double>(n))) + (unit > kUnit ? unit : 0.0);
            for (std::int64_t d = 0; d < v_dim; ++d) {
                const auto at = static_cast<std::size_t>(d);
                tallies[i].add(after.at(in_call, h, d), {double{want[at]}, 2 * weight * double{spread[at]} + kUnit * std::fabs(double{want[at]})},
                               row, h * v_dim + d);
            }
        });
        for (const Tally& t : tallies) tally.merge(t);
    }
    report(site, plugin.id(), {}, std::move(tally), begin);
    return ASSAY_OK;
}

}  // namespace assay
