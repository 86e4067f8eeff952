#include "plugins/quant/ggml/query.hpp"

#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/format.hpp"

#include <cstdio>
#include <cstring>

namespace ggml {
namespace {

/// Checks one tensor: dtype f32, rank, shape, innermost stride 1.
assay_status check_tensor(const char* name, int index, const assay_tensor& t, std::int32_t rank,
                          const std::int64_t* shape, assay_error* err) noexcept {
    if (t.data == nullptr) return sdk::fail(err, ASSAY_INVALID, "%s[%d]: no data", name, index);
    if (t.dtype != ASSAY_F32)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "%s[%d]: dtype %s, want f32", name, index,
                         sdk::dtype_name(t.dtype));
    if (t.rank != rank)
        return sdk::fail(err, ASSAY_INVALID, "%s[%d]: rank %d, want %d", name, index, t.rank, rank);
    for (int i = 0; i < rank; ++i)
        if (t.shape[i] != shape[i])
            return sdk::fail(err, ASSAY_INVALID, "%s[%d]: dimension %d is %lld, want %lld", name,
                             index, i, static_cast<long long>(t.shape[i]),
                             static_cast<long long>(shape[i]));
    if (t.stride[rank - 1] != 1)
        return sdk::fail(err, ASSAY_INVALID, "%s[%d]: innermost stride %lld, want 1", name, index,
                         static_cast<long long>(t.stride[rank - 1]));
    return ASSAY_OK;
}

assay_status check_weights(const assay_matmul& a, assay_error* err) noexcept {
    if (a.num_weights < 1 || a.num_weights > ASSAY_MAX_FUSED)
        return sdk::fail(err, ASSAY_INVALID, "num_weights is %d, want 1..%d", a.num_weights,
                         ASSAY_MAX_FUSED);
    for (int i = 0; i < a.num_weights; ++i) {
        if (const assay_status s = check_weight(a.w[i], err); s != ASSAY_OK) return s;
        if (a.w[i]->cols != a.w[0]->cols || a.w[i]->experts != a.w[0]->experts)
            return sdk::fail(err, ASSAY_INVALID, "w[%d] differs from w[0] in cols or experts", i);
    }
    if (a.glu < ASSAY_GLU_NONE || a.glu > ASSAY_GLU_SILU_CLAMP)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "glu %d is unknown", a.glu);
    if (a.glu != ASSAY_GLU_NONE && (a.num_weights != 2 || a.w[0]->rows != a.w[1]->rows))
        return sdk::fail(err, ASSAY_INVALID, "glu needs two weights with equal rows");
    if ((a.flags & ~(ASSAY_MM_ACCUMULATE | ASSAY_MM_PRECISE | ASSAY_MM_FINE)) != 0)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "flags 0x%x: unknown bits", a.flags);
    return ASSAY_OK;
}

}  // namespace

assay_status check_weight(const assay_weight* w, assay_error* err) noexcept {
    if (w == nullptr || w->format == nullptr || w->data == nullptr)
        return sdk::fail(err, ASSAY_INVALID, "a weight without format or data");
    const Format* f = find_format(w->format);
    if (f == nullptr) return sdk::fail(err, ASSAY_UNSUPPORTED, "unknown format \"%s\"", w->format);
    if (w->layout != nullptr && std::strcmp(w->layout, ASSAY_LAYOUT_STORED) != 0)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "unknown layout \"%s\"", w->layout);
    constexpr std::int64_t kLimit = std::int64_t{1}
                                    << 40;  // keeps the products below within 64 bits
    if (w->experts < 1 || w->rows < 1 || w->cols < 1 || w->experts > kLimit || w->rows > kLimit ||
        w->cols > (std::int64_t{1} << 31) || w->experts > kLimit / w->rows)
        return sdk::fail(err, ASSAY_INVALID, "weight of shape [%lld, %lld, %lld]",
                         static_cast<long long>(w->experts), static_cast<long long>(w->rows),
                         static_cast<long long>(w->cols));
    if (w->cols % f->abi.block_cols != 0)
        return sdk::fail(err, ASSAY_INVALID, "%s: K is %lld, want a multiple of %u", w->format,
                         static_cast<long long>(w->cols), f->abi.block_cols);
    const auto num_rows =
        static_cast<unsigned __int128>(w->experts) * static_cast<std::uint64_t>(w->rows);
    if (num_rows * static_cast<std::uint64_t>(f->row_bytes(w->cols)) > w->data_bytes)
        return sdk::fail(err, ASSAY_INVALID,
                         "%s: data_bytes %llu is too little for [%lld, %lld, %lld]", w->format,
                         static_cast<unsigned long long>(w->data_bytes),
                         static_cast<long long>(w->experts), static_cast<long long>(w->rows),
                         static_cast<long long>(w->cols));
    return ASSAY_OK;
}

assay_status check_arguments(std::int32_t op, const assay_matmul& a, assay_error* err) noexcept {
    if (const assay_status s = check_weights(a, err); s != ASSAY_OK) return s;
    const bool is_batched = op == ASSAY_Q_BATCHED, is_grouped = op == ASSAY_Q_GROUPED;
    const std::int64_t num_experts = a.w[0]->experts, k = a.w[0]->cols;
    if (op == ASSAY_Q_MATMUL && num_experts != 1)
        return sdk::fail(err, ASSAY_INVALID, "matmul: weight with %lld experts",
                         static_cast<long long>(num_experts));
    if (is_batched && a.glu != ASSAY_GLU_NONE)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "batched products have no glu");
    if (is_grouped && (a.expert_offset == nullptr || a.num_slots < 0))
        return sdk::fail(err, ASSAY_INVALID, "grouped: no expert_offset, or num_slots %d",
                         a.num_slots);

    const std::int32_t rank = is_batched ? 3 : 2;
    const std::int64_t num_x = a.x.rank == rank ? a.x.shape[0] : 0;
    const std::int64_t x_shape[3] = {num_x, is_batched ? num_experts : k, k};
    if (const assay_status s = check_tensor("x", 0, a.x, rank, x_shape, err); s != ASSAY_OK)
        return s;
    const std::int64_t num_slots = is_grouped ? a.num_slots : num_x;
    for (int i = 0; i < a.num_weights; ++i) {
        const std::int64_t n = a.w[i]->rows;
        if (i == 0 || a.glu == ASSAY_GLU_NONE) {
            const std::int64_t y_shape[3] = {num_slots, is_batched ? num_experts : n, n};
            if (const assay_status s = check_tensor("y", i, a.y[i], rank, y_shape, err);
                s != ASSAY_OK)
                return s;
        }
        if (a.bias[i].data == nullptr) continue;
        if (is_batched) return sdk::fail(err, ASSAY_UNSUPPORTED, "batched products have no bias");
        const std::int64_t bias_shape[2] = {is_grouped ? num_experts : n, n};
        if (const assay_status s =
                check_tensor("bias", i, a.bias[i], is_grouped ? 2 : 1, bias_shape, err);
            s != ASSAY_OK)
            return s;
    }
    return ASSAY_OK;
}

const char* refusal(const assay_quant_query& q, const char* why_f32, char* why,
                    std::size_t room) noexcept {
    const Format* format = q.format == nullptr ? nullptr : find_format(q.format);
    if (format == nullptr) {
        std::snprintf(why, room, "format \"%s\" is unknown", q.format == nullptr ? "" : q.format);
        return why;
    }
    if (q.k < 1 || q.k % format->abi.block_cols != 0) {
        std::snprintf(why, room, "%s: K is %lld, want a multiple of %u", q.format,
                      static_cast<long long>(q.k), format->abi.block_cols);
        return why;
    }
    if (q.op == ASSAY_Q_ROWS) {
        if (q.y_dtype == ASSAY_F32 || q.y_dtype == ASSAY_F16 || q.y_dtype == ASSAY_BF16)
            return nullptr;
        return "rows: out must be f32, f16 or bf16";
    }
    if (q.op == ASSAY_Q_REPACK) return nullptr;
    if (q.op != ASSAY_Q_MATMUL && q.op != ASSAY_Q_BATCHED && q.op != ASSAY_Q_GROUPED)
        return "the operation is unknown";
    if (q.x_dtype != ASSAY_F32 || q.y_dtype != ASSAY_F32) {
        std::snprintf(why, room, "%s must be f32: %s", q.x_dtype != ASSAY_F32 ? "x" : "y", why_f32);
        return why;
    }
    if (q.num_weights < 1 || q.num_weights > ASSAY_MAX_FUSED) return "num_weights must be 1 to 4";
    if (q.glu < ASSAY_GLU_NONE || q.glu > ASSAY_GLU_SILU_CLAMP) return "the glu is unknown";
    if (q.glu != ASSAY_GLU_NONE && q.num_weights != 2) return "glu needs two weights";
    if (q.glu != ASSAY_GLU_NONE && q.op == ASSAY_Q_BATCHED) return "batched products have no glu";
    if (q.bias && q.op == ASSAY_Q_BATCHED) return "batched products have no bias";
    if ((q.flags & ~(ASSAY_MM_ACCUMULATE | ASSAY_MM_PRECISE | ASSAY_MM_FINE)) != 0)
        return "flags: unknown bits";
    if (q.op == ASSAY_Q_MATMUL && q.experts > 1)
        return "matmul: a weight with experts; use grouped or batched";
    return nullptr;
}

}  // namespace ggml
