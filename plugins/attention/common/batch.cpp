#include "batch.hpp"

#include "convert.hpp"

#include <algorithm>
#include <string>

namespace attention {
namespace {

[[noreturn]] void invalid(const std::string& what) {
    throw sdk::Error{ASSAY_INVALID, what};
}

std::string number(std::int64_t value) {
    return std::to_string(value);
}

constexpr std::int64_t kRowsPerItem = 64;  // of append and kv_read: a row is a few kilobytes

void narrow(std::int32_t dtype, const float* in, std::int64_t n, void* out) {
    if (dtype == ASSAY_F32) {
        std::copy(in, in + n, static_cast<float*>(out));
        return;
    }
    auto* half = static_cast<std::uint16_t*>(out);
    if (dtype == ASSAY_F16)
        for (std::int64_t i = 0; i < n; ++i) half[i] = f32_to_f16(in[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) half[i] = f32_to_bf16(in[i]);
}

void widen(std::int32_t dtype, const void* in, std::int64_t n, float* out) {
    if (dtype == ASSAY_F32) {
        const auto* f = static_cast<const float*>(in);
        std::copy(f, f + n, out);
        return;
    }
    const auto* half = static_cast<const std::uint16_t*>(in);
    if (dtype == ASSAY_F16)
        for (std::int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(half[i]);
    else
        for (std::int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(half[i]);
}

template <class Args>
void check_call(const Args& a, const Cache& cache) {
    if (a.size < sizeof a)
        invalid("args.size is " + number(a.size) + ", expected at least " + number(sizeof a));
    check_batch(a.batch, cache.page_tokens);
}

void check_plane(const char* name, const void* plane) {
    if (plane == nullptr) invalid(std::string{"plane "} + name + " is null");
}

/// Whether the slots stand in ascending order of position, each once and none after `pos`.
bool is_ascending(const std::int32_t* slots, std::int64_t n, const Sequence& seq, std::int64_t pos,
                  std::int64_t page_tokens) noexcept {
    std::int64_t block = 0, last = -1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t page = slots[i] / page_tokens;
        while (block * page_tokens <= pos && seq.blocks[block] != page) ++block;
        const std::int64_t found = block * page_tokens + slots[i] % page_tokens;
        if (found > pos || found <= last) return false;
        last = found;
    }
    return true;
}

}  // namespace

const RowCopy kPlainRowCopy{narrow, widen};

std::int64_t sequence_of_row(const assay_attn_batch& batch, std::int64_t row) noexcept {
    // The first boundary beyond the row; empty sequences have equal boundaries and are passed over.
    const std::int32_t* end = batch.cu_q + batch.num_seqs + 1;
    return std::upper_bound(batch.cu_q, end, row) - batch.cu_q - 1;
}

void check_batch(const assay_attn_batch* batch, std::int64_t page_tokens) {
    if (batch == nullptr) invalid("no batch");
    const assay_attn_batch& b = *batch;
    if (b.size < sizeof b)
        invalid("batch.size is " + number(b.size) + ", expected at least " + number(sizeof b));
    if (b.num_seqs < 0 || b.max_blocks < 0 || b.cu_q == nullptr ||
        (b.num_seqs > 0 && (b.kv_len == nullptr || (b.max_blocks > 0 && b.block_table == nullptr))))
        invalid("the batch lacks an array or has a negative count");
    if (b.cu_q[0] < 0) invalid("cu_q[0] is negative");
    for (std::int32_t i = 0; i < b.num_seqs; ++i) {
        const auto at = [i] { return "sequence " + number(i) + ": "; };
        const std::int64_t q_len = std::int64_t{b.cu_q[i + 1]} - b.cu_q[i];
        const std::int64_t blocks = (b.kv_len[i] + page_tokens - 1) / page_tokens;
        if (q_len < 0) invalid(at() + "cu_q decreases");
        if (b.kv_len[i] < q_len)
            invalid(at() + number(q_len) + " queries but kv_len " + number(b.kv_len[i]));
        if (q_len == 0) continue;
        if (blocks > b.max_blocks)
            invalid(at() + "kv_len " + number(b.kv_len[i]) + " needs " + number(blocks) +
                    " blocks of " + number(page_tokens) + ", the table has " +
                    number(b.max_blocks));
        const std::int32_t* table = b.block_table + std::int64_t{i} * b.max_blocks;
        for (std::int64_t j = 0; j < blocks; ++j)
            if (table[j] < 0)
                invalid(at() + "block " + number(j) + " of " + number(blocks) + " is " +
                        number(table[j]));
    }
}

void check_tensor(const char* name, const assay_tensor& t, std::int32_t dtype, std::int64_t rows,
                  std::initializer_list<std::int64_t> tail) {
    const auto at = [name] { return std::string{name} + ": "; };
    if (t.data == nullptr) invalid(at() + "absent");
    if (t.dtype != dtype)
        invalid(at() + "dtype is " + sdk::dtype_name(t.dtype) + ", expected " +
                sdk::dtype_name(dtype));
    if (t.rank != static_cast<std::int32_t>(tail.size()) + 1)
        invalid(at() + "rank is " + number(t.rank) + ", expected " +
                number(static_cast<std::int64_t>(tail.size()) + 1));
    if (t.shape[0] < rows)
        invalid(at() + number(t.shape[0]) + " rows, the batch has " + number(rows));
    int i = 1;
    for (const std::int64_t n : tail) {
        if (t.shape[i] != n)
            invalid(at() + "shape[" + number(i) + "] is " + number(t.shape[i]) + ", expected " +
                    number(n));
        ++i;
    }
    if (t.stride[t.rank - 1] != 1 && t.shape[t.rank - 1] > 1)
        invalid(at() + "innermost stride is " + number(t.stride[t.rank - 1]) + ", expected 1");
}

void check_run(const Layer& layer, const Cache& cache, const assay_attn_args& a) {
    check_call(a, cache);
    const std::int64_t rows = end_row(*a.batch);
    if (rows == first_row(*a.batch)) return;
    if (a.k_expanded.data != nullptr || a.v_expanded.data != nullptr)
        throw sdk::Error{ASSAY_UNSUPPORTED,
                         "expanded keys and values (MLA prefill) are not served"};
    check_tensor("q", a.q, ASSAY_F32, rows, {layer.num_q_heads, layer.key_dim});
    check_tensor("out", a.out, ASSAY_F32, rows, {layer.num_q_heads, layer.value_dim});
    if (a.lse.data != nullptr) check_tensor("lse", a.lse, ASSAY_F32, rows, {layer.num_q_heads});
    if (layer.has_sinks) check_tensor("sinks", a.sinks, ASSAY_F32, layer.num_q_heads, {});
    if (layer.is_sparse())
        check_tensor("topk_slots", a.topk_slots, ASSAY_I32, rows, {layer.index_topk});
    check_plane("0", a.planes[0]);
    if (!layer.is_mla()) check_plane("1", a.planes[1]);
}

void check_index(const Layer& layer, const Cache& cache, const assay_attn_index_args& a) {
    check_call(a, cache);
    if (!layer.has_index()) invalid("index() of a layer without an indexer of its own");
    const std::int64_t rows = end_row(*a.batch);
    if (rows == first_row(*a.batch)) return;
    check_tensor("q", a.q, ASSAY_F32, rows, {layer.index_n_heads, layer.index_head_dim});
    check_tensor("head_weight", a.head_weight, ASSAY_F32, rows, {layer.index_n_heads});
    check_tensor("topk_slots", a.topk_slots, ASSAY_I32, rows, {layer.index_topk});
    check_plane("index_k", a.planes[kIndexPlane]);
}

std::int64_t selected_slots(const std::int32_t* row, std::int64_t topk, const Sequence& seq,
                            std::int64_t pos, std::int64_t page_tokens, std::int32_t* out,
                            std::int32_t* scratch) noexcept {
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < topk; ++i) {
        if (row[i] == -1) continue;
        if (row[i] < 0) return -1;
        out[n++] = row[i];
    }
    if (is_ascending(out, n, seq, pos, page_tokens)) return n;

    // In any other order: sorted by slot, the tokens of one page stand together; the block table
    // then gives the order of the pages.
    std::sort(out, out + n);
    std::int64_t found = 0;
    for (std::int64_t block = 0; block * page_tokens <= pos; ++block) {
        const std::int64_t page_begin = std::int64_t{seq.blocks[block]} * page_tokens;
        const std::int64_t page_end =
            page_begin + std::min(page_tokens, pos + 1 - block * page_tokens);
        for (const std::int32_t* p = std::lower_bound(out, out + n, page_begin);
             p != out + n && *p < page_end && found < n; ++p)
            scratch[found++] = *p;
    }
    std::copy(scratch, scratch + found, out);
    return found == n && is_ascending(out, n, seq, pos, page_tokens) ? n : -1;
}

void fail_selection(std::int64_t row) {
    invalid(
        "topk_slots: row " + number(row) +
        " names a slot that is not a token of its sequence up to the query, or names one twice");
}

void append(const Layer& layer, const Cache& cache, const RowCopy& copy, const assay_attn_args& a,
            const assay_stream& stream) {
    check_call(a, cache);
    const std::int64_t first = first_row(*a.batch), end = end_row(*a.batch);
    if (first == end) return;
    if (a.batch->slot_map == nullptr) invalid("slot_map is null");
    check_plane("0", a.planes[0]);
    if (layer.is_mla()) {
        check_tensor("k", a.k, ASSAY_F32, end, {layer.key_dim});
        if (layer.has_index()) {
            check_tensor("index_k", a.index_k, ASSAY_F32, end, {layer.index_head_dim});
            check_plane("index_k", a.planes[kIndexPlane]);
        }
    } else {
        check_tensor("k", a.k, ASSAY_F32, end, {layer.num_kv_heads, layer.key_dim});
        check_tensor("v", a.v, ASSAY_F32, end, {layer.num_kv_heads, layer.value_dim});
        check_plane("1", a.planes[1]);
    }
    const std::int64_t element = sdk::dtype_bytes(cache.dtype);
    const auto store = [&](const assay_tensor& t, void* plane, std::int64_t row, std::int64_t slot,
                           std::int64_t heads, std::int64_t dim) {
        for (std::int64_t h = 0; h < heads; ++h) {
            const float* in = heads == 1 ? sdk::at<float>(t, row) : sdk::at<float>(t, row, h);
            copy.narrow(cache.dtype, in, dim,
                        static_cast<char*>(plane) + ((slot * heads + h) * dim) * element);
        }
    };
    const std::int64_t items = (end - first + kRowsPerItem - 1) / kRowsPerItem;
    sdk::parallel_for(stream.lanes, items, [&](std::uint32_t item, std::uint32_t) {
        const std::int64_t begin = first + item * kRowsPerItem;
        for (std::int64_t row = begin; row < std::min(begin + kRowsPerItem, end); ++row) {
            const std::int64_t slot = a.batch->slot_map[row];
            if (slot < 0) continue;
            store(a.k, a.planes[0], row, slot, layer.num_kv_heads, layer.key_dim);
            if (!layer.is_mla())
                store(a.v, a.planes[1], row, slot, layer.num_kv_heads, layer.value_dim);
            if (layer.has_index()) {
                const float* in = sdk::at<float>(a.index_k, row);
                std::copy(in, in + layer.index_head_dim,
                          static_cast<float*>(a.planes[kIndexPlane]) + slot * layer.index_head_dim);
            }
        }
    });
}

void kv_read(const Layer& layer, const Cache& cache, const RowCopy& copy, std::uint32_t plane,
             void* const* planes, const std::int32_t* slots, std::int64_t num_slots,
             const assay_tensor& out, const assay_stream& stream) {
    if (plane >= num_planes(layer))
        invalid("plane " + number(plane) + "; the layer has " + number(num_planes(layer)));
    if (num_slots == 0) return;
    const bool is_index = layer.is_mla() && plane == kIndexPlane;
    const std::int32_t dtype = is_index ? std::int32_t{ASSAY_F32} : cache.dtype;
    const std::int64_t width = is_index     ? layer.index_head_dim
                               : plane == 0 ? layer.key_row()
                                            : layer.value_row();
    check_tensor("out", out, ASSAY_F32, num_slots, {width});
    if (slots == nullptr) invalid("slots is null");
    if (planes == nullptr) invalid("planes is null");
    check_plane(number(plane).c_str(), planes[plane]);
    const std::int64_t items = (num_slots + kRowsPerItem - 1) / kRowsPerItem;
    sdk::parallel_for(stream.lanes, items, [&](std::uint32_t item, std::uint32_t) {
        const std::int64_t begin = item * kRowsPerItem;
        for (std::int64_t i = begin; i < std::min(begin + kRowsPerItem, num_slots); ++i) {
            float* row = sdk::at<float>(out, i);
            if (slots[i] < 0) {
                std::fill(row, row + width, 0.0F);
                continue;
            }
            copy.widen(dtype,
                       static_cast<const char*>(planes[plane]) +
                           slots[i] * width * sdk::dtype_bytes(dtype),
                       width, row);
        }
    });
}

}  // namespace attention
