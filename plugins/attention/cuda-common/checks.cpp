#include "checks.hpp"

#include <string>

namespace attention::gpu {
namespace {

[[noreturn]] void invalid(const std::string& what) {
    throw sdk::Error{ASSAY_INVALID, what};
}
std::string number(std::int64_t value) {
    return std::to_string(value);
}

}  // namespace

BatchShape check_batch(const Instance& in, const assay_attn_batch* batch) {
    if (batch == nullptr) invalid("no batch");
    const assay_attn_batch& b = *batch;
    if (b.size < sizeof b)
        invalid("batch.size is " + number(b.size) + ", expected at least " + number(sizeof b));
    if (b.num_seqs < 0 || b.max_blocks < 0 || b.cu_q == nullptr || b.host_cu_q == nullptr ||
        (b.num_seqs > 0 && (b.kv_len == nullptr || b.host_kv_len == nullptr ||
                            (b.max_blocks > 0 && b.block_table == nullptr))))
        invalid("the batch lacks an array or has a negative count");
    const auto more = [](const char* what, std::int64_t found, std::int64_t named) {
        invalid(std::string{what} + " is " + number(found) + ", sizes() was told at most " +
                number(named));
    };
    if (b.num_seqs > in.limits.max_seqs) more("num_seqs", b.num_seqs, in.limits.max_seqs);
    if (b.host_cu_q[0] < 0) invalid("cu_q[0] is negative");
    BatchShape shape;
    shape.first_row = b.host_cu_q[0];
    for (std::int32_t i = 0; i < b.num_seqs; ++i) {
        const auto at = [i] { return "sequence " + number(i) + ": "; };
        const std::int64_t q_len = std::int64_t{b.host_cu_q[i + 1]} - b.host_cu_q[i];
        const std::int64_t kv_len = b.host_kv_len[i];
        const std::int64_t blocks = (kv_len + in.cache.page_tokens - 1) / in.cache.page_tokens;
        if (q_len < 0) invalid(at() + "cu_q decreases");
        if (kv_len < q_len) invalid(at() + number(q_len) + " queries but kv_len " + number(kv_len));
        if (kv_len > in.limits.max_kv_len) more("kv_len", kv_len, in.limits.max_kv_len);
        if (q_len == 0) continue;
        if (blocks > b.max_blocks)
            invalid(at() + "kv_len " + number(kv_len) + " needs " + number(blocks) + " blocks of " +
                    number(in.cache.page_tokens) + ", the table has " + number(b.max_blocks));
        if (q_len <= kFewTokens) shape.has_few = true;
    }
    shape.num_tokens = b.host_cu_q[b.num_seqs] - b.host_cu_q[0];
    if (shape.num_tokens > in.limits.max_tokens)
        more("the number of tokens", shape.num_tokens, in.limits.max_tokens);
    return shape;
}

std::int64_t many_tiles(const assay_attn_batch& batch, const Geometry& g) {
    std::int64_t tiles = 0;
    for (std::int32_t i = 0; i < batch.num_seqs; ++i) {
        const std::int64_t q_len = std::int64_t{batch.host_cu_q[i + 1]} - batch.host_cu_q[i];
        if (q_len <= kFewTokens) continue;
        tiles += g.topk != 0 ? q_len * ((g.group + g.many_rows - 1) / g.many_rows)
                             : (q_len * g.group + g.many_rows - 1) / g.many_rows;
    }
    return tiles;
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

void check_plane(const char* name, const void* plane) {
    if (plane == nullptr) invalid(std::string{"plane "} + name + " is null");
    if (reinterpret_cast<std::uintptr_t>(plane) % 16 != 0)
        invalid(std::string{"plane "} + name + " is not aligned to 16 bytes");
}

void check_run(const Instance& in, const Layer& layer, const assay_attn_args& a,
               std::int64_t rows) {
    if (a.k_expanded.data != nullptr || a.v_expanded.data != nullptr)
        throw sdk::Error{ASSAY_UNSUPPORTED,
                         "expanded keys and values (MLA prefill) are not served"};
    check_tensor("q", a.q, in.io_dtype, rows, {layer.num_q_heads, layer.key_dim});
    check_tensor("out", a.out, in.io_dtype, rows, {layer.num_q_heads, layer.value_dim});
    if (a.lse.data != nullptr) check_tensor("lse", a.lse, ASSAY_F32, rows, {layer.num_q_heads});
    if (layer.has_sinks) check_tensor("sinks", a.sinks, ASSAY_F32, layer.num_q_heads, {});
    if (layer.is_sparse())
        check_tensor("topk_slots", a.topk_slots, ASSAY_I32, rows, {layer.index_topk});
    check_plane("0", a.planes[0]);
    if (!layer.is_mla()) check_plane("1", a.planes[1]);
}

}  // namespace attention::gpu
