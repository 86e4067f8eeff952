// Kernel level: attention of every kind of layer, on scratch pages, with fresh random inputs: ragged
// batches, chunks, chunks of no token, and lengths on both sides of every limit.

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "daemon/assay/context.hpp"
#include "daemon/assay/guarded.hpp"
#include "daemon/base/error.hpp"
#include "daemon/model/needs.hpp"

namespace assay {
namespace {

/// What a plugin did wrong beside its numbers.
class OpFailure : public base::AssayError {
public:
    OpFailure(std::string op, const std::string& what) : base::AssayError{what}, op_{std::move(op)} {}
    [[nodiscard]] const std::string& op() const { return op_; }

private:
    std::string op_;
};

struct Chunk {
    std::int32_t sequence;
    std::int32_t q_len;
};

/// One layer over scratch pages of its own, and the steps that are run on it.
class Scratch {
public:
    Scratch(Context& c, std::int64_t layer, const assay_attn_layer& shape, std::vector<std::int32_t> lengths, OpChecker& checker)
        : c_{c}, layer_{layer}, shape_{shape}, layout_{c.candidate.cache.layout(layer)}, checker_{checker}, lengths_{std::move(lengths)} {
        page_ = static_cast<std::int32_t>(layout_.page_tokens);
        cached_.assign(lengths_.size(), 0);
        std::int32_t pages = 2;  // and some that belong to nobody
        for (const std::int32_t n : lengths_) {
            max_blocks_ = std::max(max_blocks_, (n + page_ - 1) / page_ + 1);
            pages += (n + page_ - 1) / page_;
        }
        std::vector<std::int32_t> ids(static_cast<std::size_t>(pages));
        std::iota(ids.begin(), ids.end(), 0);
        std::shuffle(ids.begin(), ids.end(), c.rng);
        std::size_t next = 0;
        for (const std::int32_t n : lengths_) {
            std::vector<std::int32_t>& table = tables_.emplace_back(static_cast<std::size_t>(max_blocks_), -1);
            for (std::int32_t b = 0; b < (n + page_ - 1) / page_; ++b) table[static_cast<std::size_t>(b)] = ids[next++];
        }
        for (std::uint32_t p = 0; p < layout_.num_planes; ++p) {
            // All bits set: whoever reads a token that was not stored computes a NaN.
            const std::uint64_t bytes = layout_.planes[p].bytes_per_token * layout_.page_tokens * static_cast<std::uint64_t>(pages);
            planes_.push_back(std::make_unique<Guarded>(c.candidate.device, c.candidate.stream, static_cast<std::int64_t>((bytes + 3) / 4)));
        }
        for (const plugin::Attention* a : {&c.candidate.prefill, &c.candidate.decode}) {
            const model::RunnerLimits& limits = c.candidate.runner.limits();
            std::uint64_t plan = 0, workspace = 0;
            assay_error err = sdk::make_error();
            // As the runner asked, so that nothing changes for it.
            if (a->api().sizes(a->self(), limits.max_seqs, limits.max_tokens, limits.max_kv_len, &plan, &workspace, &err) != ASSAY_OK)
                throw base::AssayError{"attention plugin \"" + a->id() + "\", sizes: " + err.text};
            plan_bytes_ = std::max(plan_bytes_, plan);
            workspace_bytes_ = std::max(workspace_bytes_, workspace);
        }
        plan_ = c.candidate.device.alloc(plan_bytes_);
        workspace_ = c.candidate.device.alloc(workspace_bytes_);
    }

    /// One call of a step. Decodes come first. Throws OpFailure.
    /// @param attends  false: the tokens are stored, and nothing is asked of them yet
    void step(const std::vector<Chunk>& chunks, const plugin::Attention& plugin, std::int32_t phase, const std::string& where,
              bool attends = true) {
        std::vector<std::int32_t> cu_q{0}, kv_len, table, slots;
        std::int32_t decodes = 0, max_q = 0, max_kv = 0;
        for (const Chunk& chunk : chunks) {
            const auto s = static_cast<std::size_t>(chunk.sequence);
            for (std::int32_t i = 0; i < chunk.q_len; ++i) {
                const std::int32_t at = cached_[s] + i;
                slots.push_back(tables_[s][static_cast<std::size_t>(at / page_)] * page_ + at % page_);
            }
            cached_[s] += chunk.q_len;
            cu_q.push_back(cu_q.back() + chunk.q_len);
            kv_len.push_back(cached_[s]);
            table.insert(table.end(), tables_[s].begin(), tables_[s].end());
            if (chunk.q_len == 1 && phase != ASSAY_PREFILL && decodes + 1 == static_cast<std::int32_t>(kv_len.size())) ++decodes;
            max_q = std::max(max_q, chunk.q_len);
            max_kv = std::max(max_kv, cached_[s]);
        }
        const std::int64_t rows = cu_q.back();
        const auto device_ints = [&](const std::vector<std::int32_t>& values) {
            auto out = std::make_unique<Guarded>(c_.candidate.device, c_.candidate.stream, static_cast<std::int64_t>(std::max<std::size_t>(values.size(), 1)));
            if (!values.empty()) out->set(std::span<const std::int32_t>{values});
            return out;
        };
        const auto d_cu = device_ints(cu_q), d_len = device_ints(kv_len), d_table = device_ints(table), d_slots = device_ints(slots);
        assay_attn_batch batch{};
        batch.size = sizeof batch;
        batch.num_seqs = static_cast<std::int32_t>(chunks.size());
        batch.num_decode_seqs = decodes;
        batch.num_tokens = static_cast<std::int32_t>(rows);
        batch.max_q_len = max_q;
        batch.max_kv_len = max_kv;
        batch.max_blocks = max_blocks_;
        batch.cu_q = d_cu->ints();
        batch.kv_len = d_len->ints();
        batch.block_table = d_table->ints();
        batch.slot_map = d_slots->ints();
        batch.host_cu_q = cu_q.data();
        batch.host_kv_len = kv_len.data();

        const bool is_mla = shape_.attn_class != ASSAY_ATTN_GQA, has_index = shape_.index_role == ASSAY_INDEX_FULL;
        const std::int64_t heads = shape_.num_q_heads, kv_heads = shape_.num_kv_heads;
        const std::int64_t dim = is_mla ? shape_.kv_lora_rank + shape_.qk_rope_head_dim : shape_.head_dim;
        const std::int64_t v_dim = is_mla ? shape_.kv_lora_rank : shape_.v_head_dim;
        const auto q = random(rows * heads * dim), k = random(rows * (is_mla ? 1 : kv_heads) * dim);
        const auto v = random(is_mla ? 1 : rows * kv_heads * v_dim), sinks = random(heads);
        const auto index_q = random(has_index ? rows * shape_.index_n_heads * shape_.index_head_dim : 1);
        const auto index_k = random(has_index ? rows * shape_.index_head_dim : 1), index_w = random(has_index ? rows * shape_.index_n_heads : 1);
        Guarded out{c_.candidate.device, c_.candidate.stream, std::max<std::int64_t>(1, rows * heads * v_dim)};
        Guarded topk{c_.candidate.device, c_.candidate.stream, std::max<std::int64_t>(1, rows * shape_.index_topk)};

        assay_attn_args a{};
        a.size = sizeof a;
        a.batch = &batch;
        a.phase = phase;
        for (std::size_t p = 0; p < planes_.size(); ++p) a.planes[p] = planes_[p]->data();
        a.q = sdk::make_tensor(q->data(), ASSAY_F32, rows, heads, dim);
        a.k = is_mla ? sdk::make_tensor(k->data(), ASSAY_F32, rows, dim) : sdk::make_tensor(k->data(), ASSAY_F32, rows, kv_heads, dim);
        if (!is_mla) a.v = sdk::make_tensor(v->data(), ASSAY_F32, rows, kv_heads, v_dim);
        if (has_index) a.index_k = sdk::make_tensor(index_k->data(), ASSAY_F32, rows, shape_.index_head_dim);
        if (shape_.has_sinks) a.sinks = sdk::make_tensor(sinks->data(), ASSAY_F32, heads);
        if (shape_.index_role != ASSAY_INDEX_NONE) a.topk_slots = sdk::make_tensor(topk.data(), ASSAY_I32, rows, shape_.index_topk);
        a.out = sdk::make_tensor(out.data(), ASSAY_F32, rows, heads, v_dim);
        a.plan = plan_.data();
        a.workspace = workspace_.data();
        a.workspace_bytes = workspace_bytes_;

        const auto layer = static_cast<std::uint32_t>(layer_);
        assay_error err = sdk::make_error();
        const auto must = [&](assay_status status, const char* op) {
            if (status != ASSAY_OK) throw OpFailure{op, where + ": status " + std::to_string(status) + ": " + err.text};
        };
        if (plugin.api().prepare != nullptr)
            must(plugin.api().prepare(plugin.self(), &batch, phase, plan_.data(), c_.candidate.stream.get(), &err), "attention.prepare");
        must(checker_.append({"attention.append", layer_}, plugin, layer, a, &err), "attention.append");
        if (!attends) return;
        if (has_index) {
            assay_attn_index_args x{};
            x.size = sizeof x;
            x.batch = &batch;
            x.phase = phase;
            std::copy(std::begin(a.planes), std::end(a.planes), std::begin(x.planes));
            x.q = sdk::make_tensor(index_q->data(), ASSAY_F32, rows, shape_.index_n_heads, shape_.index_head_dim);
            x.head_weight = sdk::make_tensor(index_w->data(), ASSAY_F32, rows, shape_.index_n_heads);
            x.topk_slots = a.topk_slots;
            x.plan = a.plan;
            x.workspace = a.workspace;
            x.workspace_bytes = a.workspace_bytes;
            must(checker_.index({"attention.index", layer_}, plugin, layer, x, &err), "attention.index");
        } else if (shape_.index_role == ASSAY_INDEX_SHARED) {
            topk.set(std::span<const std::int32_t>{some_selection(chunks, rows)});
        }
        must(checker_.attend({"attention.run", layer_}, plugin, layer, a, &err), "attention.run");

        const std::vector<float> first = out.whole();
        out.poison();
        must(plugin.api().run(plugin.self(), layer, &a, c_.candidate.stream.get(), &err), "attention.run");
        if (rows > 0 && !same_bits(first, out.whole())) throw OpFailure{"attention.run", where + ": two runs of one call gave different bits"};
        for (const auto& [guard, what] : {std::pair<const Guarded*, const char*>{&out, "attention.run"}, {&topk, "attention.index"}})
            if (rows > 0 && !guard->damage().empty()) throw OpFailure{what, where + ": " + guard->damage()};
        for (const auto& plane : planes_)
            if (!plane->damage().empty()) throw OpFailure{"attention.append", where + ": the cache: " + plane->damage()};
    }

    [[nodiscard]] std::int32_t rest(std::size_t sequence) const { return lengths_[sequence] - cached_[sequence]; }
    [[nodiscard]] std::size_t num_sequences() const { return lengths_.size(); }

private:
    std::unique_ptr<Guarded> random(std::int64_t count) {
        std::normal_distribution<float> normal;
        std::vector<float> values(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
        for (float& x : values) x = normal(c_.rng);
        auto out = std::make_unique<Guarded>(c_.candidate.device, c_.candidate.stream, static_cast<std::int64_t>(values.size()));
        out->set(std::span<const float>{values});
        return out;
    }

    /// For a layer that reads another's choice: distinct positions that each query may see, the latest.
    std::vector<std::int32_t> some_selection(const std::vector<Chunk>& chunks, std::int64_t rows) const {
        std::vector<std::int32_t> out(static_cast<std::size_t>(rows * shape_.index_topk), -1);
        std::size_t row = 0;
        for (const Chunk& chunk : chunks) {
            const auto s = static_cast<std::size_t>(chunk.sequence);
            for (std::int32_t i = 0; i < chunk.q_len; ++i, ++row) {
                const std::int32_t position = cached_[s] - chunk.q_len + i;
                for (std::int32_t k = 0; k < std::min(position + 1, shape_.index_topk); ++k) {
                    const std::int32_t at = position - k;
                    out[row * static_cast<std::size_t>(shape_.index_topk) + static_cast<std::size_t>(k)] =
                        tables_[s][static_cast<std::size_t>(at / page_)] * page_ + at % page_;
                }
            }
        }
        return out;
    }

    Context& c_;
    std::int64_t layer_;
    const assay_attn_layer& shape_;
    const assay_kv_layout& layout_;
    OpChecker& checker_;
    std::vector<std::int32_t> lengths_, cached_;
    std::int32_t page_ = 0, max_blocks_ = 1;
    std::vector<std::vector<std::int32_t>> tables_;
    std::vector<std::unique_ptr<Guarded>> planes_;
    std::uint64_t plan_bytes_ = 0, workspace_bytes_ = 0;
    plugin::Buffer plan_, workspace_;
};

/// Lengths on both sides of every limit that this layer has, each at most `max_len`.
std::vector<std::int32_t> lengths_around_limits(const Context& c, const assay_attn_layer& shape, std::int32_t page, std::int32_t max_len) {
    std::set<std::int32_t> out;
    const auto around = [&](std::int32_t limit) {
        for (const std::int32_t n : {limit - 1, limit, limit + 1})
            if (n >= 1 && n <= max_len) out.insert(n);
    };
    around(page);
    around(2 * page);
    if (shape.window > 0) around(shape.window);
    if (shape.index_role != ASSAY_INDEX_NONE) around(shape.index_topk);
    // One chunk and a token more, where that is no longer than the rest.
    const std::int32_t chunk = c.candidate.runner.limits().max_tokens;
    if (chunk + 1 <= std::max(max_len / 2, 4 * page)) around(chunk);
    out.insert(1);
    return {out.begin(), out.end()};
}

void prove(Context& c, const std::string& id, std::int64_t layer, const assay_attn_layer& shape, Gathering& gathering) {
    const std::int32_t page = c.candidate.cache.block_size();
    const model::RunnerLimits& limits = c.candidate.runner.limits();
    std::string where;
    OpChecker checker = c.checker([&](const Finding& f) { gathering.add(id + f.op.substr(f.op.find('.')), f, where); });
    Sampling sampling;
    sampling.max_rows = 6;
    sampling.max_heads = 4;
    checker.set_sampling(sampling);

    std::vector<std::int32_t> all = lengths_around_limits(c, shape, page, c.max_len());
    const auto group_size = static_cast<std::size_t>(std::max(1, std::min(limits.max_seqs - 1, 8)));
    for (std::size_t begin = 0; begin < all.size(); begin += group_size) {
        std::vector<std::int32_t> lengths(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                          all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), begin + group_size)));
        // The longest once more, to be prefilled beside the others' decodes.
        if (limits.max_seqs > 1) lengths.push_back(std::min(all.back(), 2 * page + 3));
        Scratch scratch{c, layer, shape, lengths, checker};
        const auto n = static_cast<std::int32_t>(lengths.size());
        const std::int32_t last = limits.max_seqs > 1 ? n - 1 : n;

        // Prompts up to their last token, cut into chunks that end on no boundary; who is done has chunks
        // of no token. The first chunk of a sequence is short, so that later ones meet cached tokens.
        const auto prefill = [&](std::int32_t first, std::int32_t end, std::int32_t leave, const char* what) {
            for (std::int32_t round = 0;; ++round) {
                std::vector<Chunk> chunks;
                std::int32_t room = limits.max_tokens, total = 0;
                for (std::int32_t s = first; s < end; ++s) {
                    const std::int32_t want = std::max(0, scratch.rest(static_cast<std::size_t>(s)) - leave);
                    const std::int32_t q = std::min({want, room, round == 0 ? page / 2 + 3 + s : limits.max_tokens});
                    chunks.push_back({s, q});
                    room -= q;
                    total += q;
                }
                if (total == 0) return;
                where = std::string{what} + ", chunk " + std::to_string(round);
                scratch.step(chunks, c.candidate.prefill, ASSAY_PREFILL, where);
            }
        };
        // Of a long sequence the last tokens alone are asked about.
        for (std::int32_t s = 0; s < last; ++s)
            while (scratch.rest(static_cast<std::size_t>(s)) > 8 * page) {
                where = "storing a prompt";
                const std::int32_t q = std::min(scratch.rest(static_cast<std::size_t>(s)) - 2 * page - 5, limits.max_tokens);
                scratch.step({{s, q}}, c.candidate.prefill, ASSAY_PREFILL, where, false);
            }
        prefill(0, last, 2, "prefill");
        const auto next_tokens = [&] {
            std::vector<Chunk> chunks;
            for (std::int32_t s = 0; s < last; ++s)
                if (scratch.rest(static_cast<std::size_t>(s)) > 0) chunks.push_back({s, 1});
            return chunks;
        };
        where = "decode";
        scratch.step(next_tokens(), c.candidate.decode, ASSAY_DECODE, where);
        std::vector<Chunk> both = next_tokens();
        if (c.candidate.mixed && last < n) {
            where = "decode and prefill in one call";
            both.push_back({last, std::min(scratch.rest(static_cast<std::size_t>(last)), std::max(1, limits.max_tokens - last))});
            scratch.step(both, c.candidate.prefill, ASSAY_MIXED, where);
        } else if (!both.empty()) {
            where = "second decode";
            scratch.step(both, c.candidate.decode, ASSAY_DECODE, where);
        }
        if (last < n) prefill(last, n, 1, "prefill of one");
        if (last < n && scratch.rest(static_cast<std::size_t>(last)) > 0) {
            where = "decode of one";
            scratch.step({{last, 1}}, c.candidate.decode, ASSAY_DECODE, where);
        }
        if (c.cancelled()) return;
    }
}

const char* class_word(std::int32_t attn_class) {
    return attn_class == ASSAY_ATTN_GQA ? "gqa" : attn_class == ASSAY_ATTN_MLA ? "mla" : "mla_dsa";
}

}  // namespace

void run_attention(Context& c) {
    Gathering gathering{Level::kernels};
    const std::vector<assay_attn_layer> layers = model::attention_layers(c.candidate.hparams());
    for (const plugin::AttentionNeed& need : model::attention_needs(c.candidate.hparams())) {
        const auto layer = std::find_if(layers.begin(), layers.end(), [&](const assay_attn_layer& l) {
                               return l.window == need.layer.window && l.index_role == need.layer.index_role;
                           }) -
                           layers.begin();
        std::string id = std::string{"kernels.attention."} + class_word(need.layer.attn_class);
        if (need.layer.window > 0) id += ".window";
        if (need.layer.index_role == ASSAY_INDEX_SHARED) id += ".shared";
        c.begin("kernels: attention of " + need.label);
        Subject subject{c.candidate.prefill.id(), {}, {}, layer};
        try {
            prove(c, id, layer, layers[static_cast<std::size_t>(layer)], gathering);
        } catch (const OpFailure& e) {
            subject.op = e.op();
            gathering.fail(id + e.op().substr(e.op().find('.')), subject, e.what());
        } catch (const base::StartError& e) {
            gathering.fail(id + ".run", subject, e.what());
        }
    }
    gathering.finish(c);
}

}  // namespace assay
