#include "world.hpp"

#include "plugins/attention/common/convert.hpp"
#include "reference/attention.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace attention_test {
namespace {

constexpr std::uint32_t kPoison = 0x7fc0dead;  // a NaN that no arithmetic makes
constexpr std::int32_t kIndexPoison = -77;
constexpr std::int64_t kGuardRows = 2;    // rows before and after those of a step
constexpr std::int64_t kGuardBytes = 64;  // after the workspace
constexpr std::int64_t kPad = 5;          // elements after each head and each row

float poison() {
    return std::bit_cast<float>(kPoison);
}

float representable(float x, assay_dtype dtype) {
    if (dtype == ASSAY_F16) return attention::f16_to_f32(attention::f32_to_f16(x));
    if (dtype == ASSAY_BF16) return attention::bf16_to_f32(attention::f32_to_bf16(x));
    return x;
}

/// A [rows, heads, dim] tensor whose heads and rows are longer than they need to be.
struct Padded {
    std::vector<float> data;
    assay_tensor tensor{};
    std::int64_t heads, dim;

    Padded(std::int64_t rows, std::int64_t num_heads, std::int64_t head_dim, bool has_head_axis)
        : heads{num_heads}, dim{head_dim} {
        const std::int64_t head_stride = dim + kPad, row_stride = heads * head_stride + kPad;
        data.assign(static_cast<std::size_t>(rows * row_stride), poison());
        tensor.data = data.data();
        tensor.dtype = ASSAY_F32;
        tensor.rank = has_head_axis ? 3 : 2;
        tensor.shape[0] = rows;
        tensor.stride[0] = row_stride;
        if (has_head_axis) {
            tensor.shape[1] = heads;
            tensor.stride[1] = head_stride;
        }
        tensor.shape[tensor.rank - 1] = dim;
        tensor.stride[tensor.rank - 1] = 1;
    }
    [[nodiscard]] float* at(std::int64_t row, std::int64_t head) {
        return data.data() + row * tensor.stride[0] + head * (dim + kPad);
    }
    void set(std::int64_t row, const float* values) {
        for (std::int64_t h = 0; h < heads; ++h)
            std::copy(values + h * dim, values + (h + 1) * dim, at(row, h));
    }
    /// Takes the values of rows [begin, end) out and poisons them, so that what remains must all be
    /// poison.
    std::vector<float> take(std::int64_t row) {
        std::vector<float> values;
        for (std::int64_t h = 0; h < heads; ++h) {
            values.insert(values.end(), at(row, h), at(row, h) + dim);
            std::fill(at(row, h), at(row, h) + dim, poison());
        }
        return values;
    }
    [[nodiscard]] bool is_all_poison() const {
        return std::all_of(data.begin(), data.end(),
                           [](float f) { return std::bit_cast<std::uint32_t>(f) == kPoison; });
    }
};

template <class T>
assay_tensor rows_tensor(std::vector<T>& data, assay_dtype dtype, std::int64_t rows,
                         std::int64_t n) {
    assay_tensor t = sdk::make_tensor(data.data(), dtype, rows, n);
    t.stride[0] = n + kPad;
    return t;
}

void fill_normal(std::vector<float>& x, std::int64_t n, std::mt19937& rng,
                 assay_dtype dtype = ASSAY_F32) {
    std::normal_distribution<float> normal;
    x.resize(static_cast<std::size_t>(n));
    for (float& f : x) f = representable(normal(rng), dtype);
}

}  // namespace

Problem random_problem(const assay_attn_layer& layer, const std::vector<std::int64_t>& lengths,
                       assay_dtype kv_dtype, std::mt19937& rng) {
    Problem p{layer, {}, {}};
    for (const std::int64_t n : lengths) {
        Tokens t;
        t.length = n;
        fill_normal(t.q, n * layer.num_q_heads * p.key_dim(), rng, kv_dtype);
        fill_normal(t.k, n * p.kv_heads() * p.key_dim(), rng, kv_dtype);
        if (!p.is_mla()) fill_normal(t.v, n * p.kv_heads() * p.value_dim(), rng, kv_dtype);
        if (p.has_index()) {
            fill_normal(t.index_q, n * layer.index_n_heads * layer.index_head_dim, rng);
            fill_normal(t.index_k, n * layer.index_head_dim, rng);
            fill_normal(t.index_weight, n * layer.index_n_heads, rng);
        }
        p.sequences.push_back(std::move(t));
    }
    if (layer.has_sinks) fill_normal(p.sinks, layer.num_q_heads, rng);
    return p;
}

struct World::Batch {
    std::vector<Chunk> chunks;
    std::vector<std::int32_t> cu_q, kv_len, block_table, slot_map;
    assay_attn_batch batch{};
    std::int64_t rows = 0;  // guards included
    std::int32_t phase = 0;
    std::vector<unsigned char> workspace, plan;
    std::vector<std::int32_t> topk;  // [rows, index_topk + pad]
    std::vector<Padded> out;         // one element, made by attend()
    std::vector<float> lse;          // [rows, Hq + pad]
};

World::World(const Backend& backend, const Problem& problem, std::int64_t page_tokens,
             std::uint32_t num_lanes, std::int64_t num_shared_pages, std::uint32_t seed)
    : problem_{problem},
      instance_{backend, problem.layer, static_cast<std::uint32_t>(page_tokens)},
      page_tokens_{page_tokens},
      max_blocks_{2},
      num_shared_pages_{num_shared_pages},
      lanes_{num_lanes} {
    std::int64_t num_pages = 3;
    for (const Tokens& t : problem.sequences) {
        const std::int64_t blocks = (t.length + page_tokens - 1) / page_tokens;
        num_pages += blocks;
        max_blocks_ = std::max(max_blocks_, blocks + 2);
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(num_pages));
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937 rng{seed};
    std::shuffle(ids.begin(), ids.end(), rng);
    std::size_t next = 0;
    for (std::size_t s = 0; s < problem.sequences.size(); ++s) {
        std::vector<std::int32_t> table(static_cast<std::size_t>(max_blocks_), -1);
        const std::int64_t blocks = (problem.sequences[s].length + page_tokens - 1) / page_tokens;
        for (std::int64_t b = 0; b < blocks; ++b)
            table[static_cast<std::size_t>(b)] = s == 1 && b < num_shared_pages
                                                     ? blocks_[0][static_cast<std::size_t>(b)]
                                                     : ids[next++];
        blocks_.push_back(std::move(table));
    }
    cached_.assign(problem.sequences.size(), 0);
    const assay_kv_layout& layout = instance_.layout();
    EXPECT_EQ(layout.page_tokens, page_tokens);
    for (std::uint32_t i = 0; i < layout.num_planes; ++i) {
        // All bytes 0xff: a NaN in every one of the dtypes.
        pages_.emplace_back(
            static_cast<std::size_t>(num_pages * page_tokens) * layout.planes[i].bytes_per_token,
            0xff);
    }
    stream_.lanes = lanes_.get();
#ifdef ASSAY_TEST_CUDA
    if (backend.is_cuda()) {
        space_ = std::make_unique<Space>();
        stream_ = space_->stream();
    }
#endif

    std::int64_t max_tokens = 0, max_kv_len = 0;
    for (const Tokens& t : problem.sequences) {
        max_tokens += t.length;
        max_kv_len = std::max(max_kv_len, t.length);
    }
    assay_error err = sdk::make_error();
    EXPECT_EQ(instance_.table().sizes(
                  instance_.self(), static_cast<std::int32_t>(problem.sequences.size()),
                  static_cast<std::int32_t>(max_tokens), static_cast<std::int32_t>(max_kv_len),
                  &plan_bytes_, &workspace_bytes_, &err),
              ASSAY_OK)
        << err.text;
}

void* World::there(const void* host, std::size_t bytes) {
#ifdef ASSAY_TEST_CUDA
    if (space_ != nullptr) return space_->enter(host, bytes);
#endif
    (void)bytes;
    return const_cast<void*>(host);
}

void World::back() {
#ifdef ASSAY_TEST_CUDA
    if (space_ != nullptr) space_->leave();
#endif
}

std::vector<void*> World::planes() {
    std::vector<void*> out(ASSAY_MAX_PLANES, nullptr);
    for (std::size_t i = 0; i < pages_.size(); ++i) out[i] = pages_[i].data();
    return out;
}

std::int32_t World::slot(std::int64_t sequence, std::int64_t position) const {
    const auto& table = blocks_[static_cast<std::size_t>(sequence)];
    return static_cast<std::int32_t>(table[static_cast<std::size_t>(position / page_tokens_)] *
                                         page_tokens_ +
                                     position % page_tokens_);
}

std::vector<Row> World::step(const std::vector<Chunk>& chunks, bool is_run) {
    Batch b;
    b.chunks = chunks;
    b.cu_q.push_back(static_cast<std::int32_t>(kGuardRows));
    std::int32_t num_decode = 0, max_q = 0, max_kv = 0;
    b.slot_map.assign(static_cast<std::size_t>(kGuardRows), 0x7fffffff);  // must not be looked at
    for (const Chunk& c : chunks) {
        std::int64_t& cached = cached_[static_cast<std::size_t>(c.sequence)];
        for (std::int64_t i = 0; i < c.q_len; ++i) {
            const bool is_shared = c.sequence == 1 && cached + i < num_shared_pages_ * page_tokens_;
            b.slot_map.push_back(is_shared ? -1 : slot(c.sequence, cached + i));
        }
        cached += c.q_len;
        b.cu_q.push_back(b.cu_q.back() + static_cast<std::int32_t>(c.q_len));
        b.kv_len.push_back(static_cast<std::int32_t>(cached));
        const auto& table = blocks_[static_cast<std::size_t>(c.sequence)];
        const std::int64_t used = (cached + page_tokens_ - 1) / page_tokens_;
        for (std::int64_t i = 0; i < max_blocks_; ++i)
            b.block_table.push_back(i < used ? table[static_cast<std::size_t>(i)] : -1);
        if (c.q_len == 1 && num_decode == static_cast<std::int32_t>(b.kv_len.size()) - 1)
            ++num_decode;
        max_q = std::max(max_q, static_cast<std::int32_t>(c.q_len));
        max_kv = std::max(max_kv, static_cast<std::int32_t>(cached));
    }
    const auto num_seqs = static_cast<std::int32_t>(chunks.size());
    b.phase = num_decode == num_seqs ? ASSAY_DECODE : num_decode == 0 ? ASSAY_PREFILL : ASSAY_MIXED;
    b.rows = b.cu_q.back() + kGuardRows;
    b.batch = {.size = sizeof(assay_attn_batch),
               .num_seqs = num_seqs,
               .num_decode_seqs = num_decode,
               .num_tokens = b.cu_q.back() - b.cu_q.front(),
               .max_q_len = max_q,
               .max_kv_len = max_kv,
               .max_blocks = static_cast<std::int32_t>(max_blocks_),
               .cu_q = b.cu_q.data(),
               .kv_len = b.kv_len.data(),
               .block_table = b.block_table.data(),
               .slot_map = b.slot_map.data(),
               .host_cu_q = b.cu_q.data(),
               .host_kv_len = b.kv_len.data()};

    b.plan.assign(plan_bytes_, 0xcd);
    b.workspace.assign(workspace_bytes_ + kGuardBytes, 0xff);
    const assay_attention& table = instance_.table();
    assay_error err = sdk::make_error();
    if (table.prepare != nullptr) {
        const assay_attn_batch batch = batch_there(b);
        EXPECT_EQ(
            table.prepare(instance_.self(), &batch, b.phase, there(b.plan), &stream_, &err),
            ASSAY_OK)
            << err.text;
        back();
    }
    append(b);
    if (!is_run) return {};
    if (problem_.is_sparse()) index(b);
    attend(b);
    return collect(b);
}

assay_attn_batch World::batch_there(const Batch& b) {
    assay_attn_batch batch = b.batch;
    batch.cu_q = there(b.cu_q);
    batch.kv_len = there(b.kv_len);
    batch.block_table = there(b.block_table);
    batch.slot_map = there(b.slot_map);
    return batch;
}

void World::append(Batch& b) {
    const auto& p = problem_;
    Padded k{b.rows, p.kv_heads(), p.key_dim(), !p.is_mla()};
    Padded v{b.rows, p.kv_heads(), std::max<std::int64_t>(p.value_dim(), 1), true};
    Padded index_k{b.rows, 1, std::max(p.layer.index_head_dim, 1), false};
    std::int64_t row = kGuardRows;
    for (std::size_t i = 0; i < b.chunks.size(); ++i) {
        const Tokens& t = p.sequences[static_cast<std::size_t>(b.chunks[i].sequence)];
        for (std::int64_t j = 0; j < b.chunks[i].q_len; ++j, ++row) {
            const std::int64_t pos = b.kv_len[i] - b.chunks[i].q_len + j;
            k.set(row, t.k.data() + pos * p.kv_heads() * p.key_dim());
            if (!p.is_mla()) v.set(row, t.v.data() + pos * p.kv_heads() * p.value_dim());
            if (p.has_index()) index_k.set(row, t.index_k.data() + pos * p.layer.index_head_dim);
        }
    }
    assay_attn_args a{};
    a.size = sizeof a;
    const assay_attn_batch batch = batch_there(b);
    a.batch = &batch;
    a.phase = b.phase;
    for (std::size_t i = 0; i < pages_.size(); ++i) a.planes[i] = there(pages_[i]);
    a.k = tensor_there(k);
    if (!p.is_mla()) a.v = tensor_there(v);
    if (p.has_index()) a.index_k = tensor_there(index_k);
    a.plan = there(b.plan);
    a.workspace = there(b.workspace);
    a.workspace_bytes = workspace_bytes_;
    assay_error err = sdk::make_error();
    ASSERT_EQ(instance_.table().append(instance_.self(), 0, &a, &stream_, &err), ASSAY_OK)
        << err.text;
    back();
}

void World::index(Batch& b) {
    const auto& layer = problem_.layer;
    const std::int64_t stride = layer.index_topk + kPad;
    b.topk.assign(static_cast<std::size_t>(b.rows * stride), kIndexPoison);
    if (!selections_.empty()) {
        std::int64_t row = kGuardRows;
        for (const Chunk& c : b.chunks)
            for (std::int64_t j = 0; j < c.q_len; ++j, ++row) {
                const auto& chosen = selections_[static_cast<std::size_t>(row - kGuardRows)];
                for (std::int64_t i = 0; i < layer.index_topk; ++i) {
                    const std::int32_t pos = i < static_cast<std::int64_t>(chosen.size())
                                                 ? chosen[static_cast<std::size_t>(i)]
                                                 : -1;
                    b.topk[static_cast<std::size_t>(row * stride + i)] =
                        pos < 0 ? -1 : slot(c.sequence, pos);
                }
            }
        return;
    }
    if (!problem_.has_index()) return;
    Padded q{b.rows, layer.index_n_heads, layer.index_head_dim, true};
    std::vector<float> weight(static_cast<std::size_t>(b.rows * (layer.index_n_heads + kPad)),
                              poison());
    std::int64_t row = kGuardRows;
    for (std::size_t i = 0; i < b.chunks.size(); ++i) {
        const Tokens& t = problem_.sequences[static_cast<std::size_t>(b.chunks[i].sequence)];
        for (std::int64_t j = 0; j < b.chunks[i].q_len; ++j, ++row) {
            const std::int64_t pos = b.kv_len[i] - b.chunks[i].q_len + j;
            q.set(row, t.index_q.data() + pos * layer.index_n_heads * layer.index_head_dim);
            const float* w = t.index_weight.data() + pos * layer.index_n_heads;
            std::copy(w, w + layer.index_n_heads,
                      weight.data() + row * (layer.index_n_heads + kPad));
        }
    }
    assay_attn_index_args a{};
    a.size = sizeof a;
    const assay_attn_batch batch = batch_there(b);
    a.batch = &batch;
    a.phase = b.phase;
    for (std::size_t i = 0; i < pages_.size(); ++i) a.planes[i] = there(pages_[i]);
    a.q = tensor_there(q);
    a.head_weight = rows_tensor(weight, ASSAY_F32, b.rows, layer.index_n_heads);
    a.head_weight.data = there(weight);
    a.topk_slots = rows_tensor(b.topk, ASSAY_I32, b.rows, layer.index_topk);
    a.topk_slots.data = there(b.topk);
    a.plan = there(b.plan);
    a.workspace = there(b.workspace);
    a.workspace_bytes = workspace_bytes_;
    assay_error err = sdk::make_error();
    ASSERT_EQ(instance_.table().index(instance_.self(), 0, &a, &stream_, &err), ASSAY_OK)
        << err.text;
    back();
}

void World::attend(Batch& b) {
    const auto& p = problem_;
    const std::int64_t heads = p.layer.num_q_heads;
    Padded q{b.rows, heads, p.key_dim(), true};
    std::int64_t row = kGuardRows;
    for (std::size_t i = 0; i < b.chunks.size(); ++i) {
        const Tokens& t = p.sequences[static_cast<std::size_t>(b.chunks[i].sequence)];
        for (std::int64_t j = 0; j < b.chunks[i].q_len; ++j, ++row)
            q.set(row, t.q.data() + (b.kv_len[i] - b.chunks[i].q_len + j) * heads * p.key_dim());
    }
    b.out.emplace_back(b.rows, heads, p.value_dim(), true);
    b.lse.assign(static_cast<std::size_t>(b.rows * (heads + kPad)), poison());
    const auto before = pages_;

    assay_attn_args a{};
    a.size = sizeof a;
    const assay_attn_batch batch = batch_there(b);
    a.batch = &batch;
    a.phase = b.phase;
    for (std::size_t i = 0; i < pages_.size(); ++i) a.planes[i] = there(pages_[i]);
    a.q = tensor_there(q);
    a.out = tensor_there(b.out[0]);
    a.lse = rows_tensor(b.lse, ASSAY_F32, b.rows, heads);
    a.lse.data = there(b.lse);
    if (p.layer.has_sinks) a.sinks = sdk::make_tensor(there(p.sinks), ASSAY_F32, heads);
    if (p.is_sparse()) {
        a.topk_slots = rows_tensor(b.topk, ASSAY_I32, b.rows, p.layer.index_topk);
        a.topk_slots.data = there(b.topk);
    }
    a.plan = there(b.plan);
    a.workspace = there(b.workspace);
    a.workspace_bytes = workspace_bytes_;
    assay_error err = sdk::make_error();
    ASSERT_EQ(instance_.table().run(instance_.self(), 0, &a, &stream_, &err), ASSAY_OK) << err.text;
    back();
    EXPECT_TRUE(pages_ == before) << "run() wrote to the pages";
}

std::vector<Row> World::collect(const Batch& b) {
    const std::int64_t heads = problem_.layer.num_q_heads, topk = problem_.layer.index_topk;
    auto out = b.out;
    // A copy's tensor points at the original; only its data is used from here on.
    auto lse = b.lse;
    auto selected = b.topk;
    std::vector<Row> rows;
    std::int64_t row = kGuardRows;
    for (std::size_t i = 0; i < b.chunks.size(); ++i)
        for (std::int64_t j = 0; j < b.chunks[i].q_len; ++j, ++row) {
            Row r;
            r.out = out[0].take(row);
            float* l = lse.data() + row * (heads + kPad);
            r.lse.assign(l, l + heads);
            std::fill(l, l + heads, poison());
            if (problem_.is_sparse()) {
                std::int32_t* s = selected.data() + row * (topk + kPad);
                for (std::int64_t n = 0; n < topk; ++n) {
                    std::int32_t pos = -1;
                    for (std::int32_t c = 0; c < b.kv_len[i] && s[n] >= 0 && pos < 0; ++c)
                        if (slot(b.chunks[i].sequence, c) == s[n]) pos = c;
                    EXPECT_TRUE(s[n] == -1 || pos >= 0)
                        << "row " << row << " selects slot " << s[n];
                    r.positions.push_back(pos);
                    s[n] = kIndexPoison;
                }
            }
            rows.push_back(std::move(r));
        }
    EXPECT_TRUE(out[0].is_all_poison()) << "out: something beside the rows was written";
    EXPECT_TRUE(std::all_of(lse.begin(), lse.end(), [](float f) {
        return std::bit_cast<std::uint32_t>(f) == kPoison;
    })) << "lse: something beside the rows was written";
    EXPECT_TRUE(std::all_of(selected.begin(), selected.end(), [](std::int32_t s) {
        return s == kIndexPoison;
    })) << "topk_slots: something beside the rows was written";
    EXPECT_TRUE(std::all_of(b.workspace.end() - kGuardBytes, b.workspace.end(),
                            [](unsigned char c) { return c == 0xff; }))
        << "written past the workspace";
    return rows;
}

std::vector<Row> defined(const Problem& p, std::int64_t sequence, std::int64_t q_len,
                         std::int64_t kv_len,
                         const std::vector<std::vector<std::int32_t>>& selection) {
    const Tokens& t = p.sequences[static_cast<std::size_t>(sequence)];
    const std::int64_t heads = p.layer.num_q_heads, dv = p.value_dim();
    const sdk::reference::Softmax softmax{p.layer.softmax_scale, p.layer.logit_softcap,
                                          p.layer.window,
                                          p.layer.has_sinks ? p.sinks.data() : nullptr};
    std::vector<float> out(static_cast<std::size_t>(q_len * heads * dv));
    std::vector<float> lse(static_cast<std::size_t>(q_len * heads));
    const float* q = t.q.data() + (kv_len - q_len) * heads * p.key_dim();
    if (!p.is_mla()) {
        sdk::reference::gqa_attention(q, t.k.data(), t.v.data(), q_len, kv_len, heads, p.kv_heads(),
                                      p.key_dim(), dv, softmax, out.data(), lse.data());
    } else {
        std::vector<std::int32_t> topk;
        for (const auto& s : selection) topk.insert(topk.end(), s.begin(), s.end());
        const std::int64_t width =
            selection.empty() ? 0 : static_cast<std::int64_t>(selection[0].size());
        sdk::reference::mla_attention(
            q, t.k.data(), q_len, kv_len, heads, dv, p.layer.qk_rope_head_dim,
            selection.empty() ? nullptr : topk.data(), width, softmax, out.data(), lse.data());
    }
    std::vector<Row> rows;
    for (std::int64_t j = 0; j < q_len; ++j) {
        Row r;
        r.out.assign(out.begin() + j * heads * dv, out.begin() + (j + 1) * heads * dv);
        r.lse.assign(lse.begin() + j * heads, lse.begin() + (j + 1) * heads);
        rows.push_back(std::move(r));
    }
    return rows;
}

// Where the rounding happens, with u = 2^-24, D the length of a dot product, A the largest value of
// scale * sum |q_i k_i|, V the largest |v|, n the number of keys:
//   a score     D/16 fused steps, 5 adds of partial sums, 1 product with the scale: (D/16 + 6) u A
//   a softcap   tanh of relative error 8 u at most, times the cap: 8 u cap
//   exp         2 ulp, and the rescaling by exp(old max - new max) once per tile of 64 and split
//   sums        one fused step per key, n at most
// A relative error e of every weight, in numerator and denominator, moves a weighted mean by 2 e V.
// The image "reference" is f64 up to one rounding of the result.
Bound error_bound(const Problem& p, std::int64_t sequence, const Backend& backend) {
    const Tokens& t = p.sequences[static_cast<std::size_t>(sequence)];
    const auto largest = [](const std::vector<float>& x) {
        float m = 0;
        for (const float f : x) m = std::max(m, std::abs(f));
        return double{m};
    };
    const auto norm = [](const std::vector<float>& x, std::int64_t dim) {
        double m = 0;  // largest Euclidean length of a head: sum |q_i k_i| <= |q| |k|
        for (std::size_t i = 0; i + static_cast<std::size_t>(dim) <= x.size();
             i += static_cast<std::size_t>(dim)) {
            double s = 0;
            for (std::int64_t d = 0; d < dim; ++d)
                s +=
                    double{x[i + static_cast<std::size_t>(d)]} * x[i + static_cast<std::size_t>(d)];
            m = std::max(m, s);
        }
        return std::sqrt(m);
    };
    constexpr double kU = 0x1p-24;
    // Tensor cores: a weight is rounded once more, to the cache's dtype (in the numerator only), and
    // sums of products lose up to two bits to alignment.
    const double narrow =
        !backend.is_tensor_core() ? 0 : backend.kv_dtype == ASSAY_F16 ? 0x1p-11 : 0x1p-8;
    const double v = largest(p.is_mla() ? t.k : t.v);
    if (std::string_view{backend.image} == "reference") return {2 * kU * v, 2 * kU * 64};
    const double dim = static_cast<double>(p.key_dim());
    const double a =
        double{p.layer.softmax_scale} * norm(t.q, p.key_dim()) * norm(t.k, p.key_dim());
    const double n = static_cast<double>(t.length);
    const double score = (backend.is_tensor_core() ? 4 : 1) * kU * ((dim / 16 + 6) * a + 8 * double{p.layer.logit_softcap});
    const double weight = score + kU * (4 + 3 * (n / 64 + n / 512 + 2));
    return {2 * v * (weight + kU * n) + v * narrow, weight + kU * n + kU * 64};
}

void expect_close(const std::vector<Row>& got, const std::vector<Row>& want, const Bound& bound,
                  const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double worst = -1, worst_lse = -1;
    std::string where, where_lse;
    const auto distance = [](float a, float b) {
        if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return 0.0;
        const double d = std::abs(double{a} - double{b});
        return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
    };
    for (std::size_t r = 0; r < got.size(); ++r) {
        ASSERT_EQ(got[r].out.size(), want[r].out.size());
        for (std::size_t i = 0; i < got[r].out.size(); ++i)
            if (const double d = distance(got[r].out[i], want[r].out[i]); d > worst) {
                worst = d;
                where = "row " + std::to_string(r) + " element " + std::to_string(i) + ": " +
                        std::to_string(got[r].out[i]) + " expected " +
                        std::to_string(want[r].out[i]);
            }
        for (std::size_t h = 0; h < got[r].lse.size(); ++h)
            if (const double d = distance(got[r].lse[h], want[r].lse[h]); d > worst_lse) {
                worst_lse = d;
                where_lse = "row " + std::to_string(r) + " head " + std::to_string(h) + ": " +
                            std::to_string(got[r].lse[h]) + " expected " +
                            std::to_string(want[r].lse[h]);
            }
    }
    EXPECT_LE(worst, bound.out) << what << ": out, worst at " << where;
    EXPECT_LE(worst_lse, bound.lse) << what << ": lse, worst at " << where_lse;
}

void expect_selection(const Problem& p, std::int64_t sequence, std::int64_t position,
                      const std::vector<std::int32_t>& got, bool is_exact) {
    const Tokens& t = p.sequences[static_cast<std::size_t>(sequence)];
    const auto& layer = p.layer;
    const std::int64_t n = position + 1;
    std::vector<double> score(static_cast<std::size_t>(n));
    sdk::reference::index_scores(
        t.index_q.data() + position * layer.index_n_heads * layer.index_head_dim, t.index_k.data(),
        t.index_weight.data() + position * layer.index_n_heads, 1, n, layer.index_n_heads,
        layer.index_head_dim, score.data());
    std::vector<std::int32_t> want(static_cast<std::size_t>(layer.index_topk));
    sdk::reference::index_topk(score.data(), n, layer.index_topk, want.data());
    std::vector<std::int32_t> chosen = got;
    std::erase(chosen, -1);
    std::sort(chosen.begin(), chosen.end());
    std::erase(want, -1);
    if (is_exact) {
        EXPECT_EQ(chosen, want) << "sequence " << sequence << " position " << position;
        return;
    }
    ASSERT_EQ(chosen.size(), want.size());
    EXPECT_TRUE(std::adjacent_find(chosen.begin(), chosen.end()) == chosen.end())
        << "a position twice";
    double least = std::numeric_limits<double>::infinity();
    for (const std::int32_t c : want) least = std::min(least, score[static_cast<std::size_t>(c)]);
    // A score sums index_n_heads products of a weight and a dot product, each at most about
    // 4 * 4 dim in size here; f32 leaves (dim/16 + heads + 8) u of that.
    const double dim = layer.index_head_dim, heads = layer.index_n_heads;
    const double near = 0x1p-24 * (dim / 16 + heads + 8) * heads * 16 * std::sqrt(dim) * 4;
    for (const std::int32_t c : chosen)
        EXPECT_GE(score[static_cast<std::size_t>(c)], least - near)
            << "sequence " << sequence << " position " << position << " chose " << c;
}

}  // namespace attention_test
