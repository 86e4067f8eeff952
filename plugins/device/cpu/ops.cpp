// The pointwise ops: argument checks, strides and threads. The arithmetic is in the row kernels of
// the device's tier. Work is cut by rows, or by pieces of a row where elements do not meet, so the
// bits of a result depend neither on the lanes nor on how many rows there are.

#include "device.hpp"
#include "tensor_rows.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <new>

namespace cpu {
namespace {

// Less than this is done by the calling thread: handing work to another costs some microseconds, in
// which one core gets through about this many elements.
constexpr std::int64_t kMinElements = 16384;
constexpr std::int64_t kPieceElements = 16384;  // of a wide row; a multiple of every vector width

// Relative to one element read and written.
constexpr std::int64_t kCostExp = 4;      // an exponential
constexpr std::int64_t kCostDouble = 16;  // a libm call in double

const RowKernels& kernels(void* self) {
    return *static_cast<const Device*>(self)->kernels;
}

/// Calls body(row) for each row, several rows an item, on the lanes of the stream. An exception of
/// the reference tier (it allocates) stops its item and becomes the status.
template <class Body>
assay_status for_rows(const assay_stream* s, std::int64_t num_rows, std::int64_t row_cost,
                      const Body& body) {
    if (num_rows <= 0) return ASSAY_OK;
    const assay_lanes* lanes = s != nullptr ? s->lanes : nullptr;
    const std::int64_t width = lanes != nullptr ? std::max<std::int64_t>(lanes->width, 1) : 1;
    std::int64_t rows =
        std::max<std::int64_t>(1, kMinElements / std::max<std::int64_t>(row_cost, 1));
    rows = std::max(rows, num_rows / (4 * width));
    const std::int64_t num_items = (num_rows + rows - 1) / rows;

    std::atomic<assay_status> status{ASSAY_OK};
    sdk::parallel_for(lanes, num_items, [&](std::uint32_t item, std::uint32_t) {
        try {
            const std::int64_t end = std::min(num_rows, (item + std::int64_t{1}) * rows);
            for (std::int64_t row = item * rows; row < end; ++row) body(row);
        } catch (const std::bad_alloc&) {
            status.store(ASSAY_NO_MEMORY);
        } catch (...) {
            status.store(ASSAY_INTERNAL);
        }
    });
    return status.load();
}

/// Calls body(row, first, count) for pieces of each row, for ops whose elements do not meet.
template <class Body>
assay_status for_pieces(const assay_stream* s, std::int64_t num_rows, std::int64_t width,
                        std::int64_t cost, const Body& body) {
    if (width == 0) return ASSAY_OK;
    const std::int64_t pieces = (width + kPieceElements - 1) / kPieceElements;
    const std::int64_t piece_width = pieces == 1 ? width : kPieceElements;
    return for_rows(s, num_rows * pieces, piece_width * cost, [&](std::int64_t item) {
        const std::int64_t first = item % pieces * kPieceElements;
        body(item / pieces, first, std::min(piece_width, width - first));
    });
}

// ---- copy ------------------------------------------------------------------------------------

bool is_float(std::int32_t dtype) {
    return dtype == ASSAY_F32 || dtype == ASSAY_F16 || dtype == ASSAY_BF16;
}

bool is_dtype(std::int32_t dtype) {
    return dtype > ASSAY_DTYPE_NONE && dtype <= ASSAY_F64;
}

void widen(const RowKernels& k, std::int32_t dtype, const void* x, float* out, std::int64_t n) {
    switch (dtype) {
        case ASSAY_F16:
            return k.f16_to_f32(static_cast<const std::uint16_t*>(x), out, n);
        case ASSAY_BF16:
            return k.bf16_to_f32(static_cast<const std::uint16_t*>(x), out, n);
        default:
            std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
    }
}

void narrow(const RowKernels& k, std::int32_t dtype, const float* x, void* out, std::int64_t n) {
    switch (dtype) {
        case ASSAY_F16:
            return k.f32_to_f16(x, static_cast<std::uint16_t*>(out), n);
        case ASSAY_BF16:
            return k.f32_to_bf16(x, static_cast<std::uint16_t*>(out), n);
        default:
            std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
    }
}

/// n elements, each `x_step` and `out_step` elements after the one before.
void convert(const RowKernels& k, std::int32_t x_dtype, const std::byte* x, std::int64_t x_step,
             std::int32_t out_dtype, std::byte* out, std::int64_t out_step, std::int64_t n) {
    const std::int64_t x_bytes = sdk::dtype_bytes(x_dtype), out_bytes = sdk::dtype_bytes(out_dtype);
    if (x_step != 1 || out_step != 1) {
        for (std::int64_t i = 0; i < n; ++i)
            convert(k, x_dtype, x + i * x_step * x_bytes, 1, out_dtype,
                    out + i * out_step * out_bytes, 1, 1);
    } else if (x_dtype == out_dtype) {
        if (x != out) std::memcpy(out, x, static_cast<std::size_t>(n * x_bytes));
    } else {
        float wide[256];
        for (std::int64_t i = 0; i < n; i += 256) {
            const std::int64_t count = std::min<std::int64_t>(256, n - i);
            widen(k, x_dtype, x + i * x_bytes, wide, count);
            narrow(k, out_dtype, wide, out + i * out_bytes, count);
        }
    }
}

/// First byte of row `row` of a tensor of any dtype.
std::byte* row_bytes(const assay_tensor& t, std::int64_t row) {
    assay_tensor bytes = t;
    const std::int64_t element = sdk::dtype_bytes(t.dtype);
    for (int d = 0; d < t.rank; ++d) bytes.stride[d] *= element;
    return Rows<std::byte>{bytes}[row];
}

assay_status copy(void* self, const assay_tensor* x, const assay_tensor* out,
                  const assay_stream* s) {
    if (!is_view(x) || !is_view(out) || !is_dtype(x->dtype) || !is_dtype(out->dtype) ||
        !same_shape(*x, *out))
        return ASSAY_INVALID;
    if (x->dtype != out->dtype && !(is_float(x->dtype) && is_float(out->dtype)))
        return ASSAY_UNSUPPORTED;
    const Rows<std::byte> rows{*x};
    const int last = x->rank - 1;
    const std::int64_t x_step = x->shape[last] > 1 ? x->stride[last] : 1;
    const std::int64_t out_step = x->shape[last] > 1 ? out->stride[last] : 1;
    return for_pieces(
        s, rows.count(), rows.width(), 1,
        [&](std::int64_t row, std::int64_t first, std::int64_t count) {
            convert(kernels(self), x->dtype,
                    row_bytes(*x, row) + first * x_step * sdk::dtype_bytes(x->dtype), x_step,
                    out->dtype,
                    row_bytes(*out, row) + first * out_step * sdk::dtype_bytes(out->dtype),
                    out_step, count);
        });
}

assay_status gather_rows(void*, const assay_tensor* x, const std::int32_t* ids,
                         const assay_tensor* out, const assay_stream* s) {
    if (!is_view(x, 2) || !is_view(out, 2) || !is_dtype(x->dtype) || x->dtype != out->dtype ||
        !has_dense_rows(*x) || !has_dense_rows(*out) || x->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t num_rows = out->shape[0], num_x = x->shape[0];
    if (num_rows == 0) return ASSAY_OK;
    if (ids == nullptr) return ASSAY_INVALID;
    const std::int64_t bytes = x->shape[1] * sdk::dtype_bytes(x->dtype);
    return for_rows(s, num_rows, x->shape[1], [&](std::int64_t i) {
        std::byte* to = row_bytes(*out, i);
        if (ids[i] >= 0 && ids[i] < num_x)
            std::memcpy(to, row_bytes(*x, ids[i]), static_cast<std::size_t>(bytes));
        else  // all ones is NaN in every float format
            std::memset(to, 0xff, static_cast<std::size_t>(bytes));
    });
}

// ---- norms -----------------------------------------------------------------------------------

assay_status rmsnorm(void* self, const assay_tensor* x, const assay_tensor* residual,
                     const assay_tensor* weight, float eps, const assay_tensor* out,
                     const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const bool has_residual = !is_absent(residual), has_weight = !is_absent(weight);
    const Rows<const float> from{*x};
    if (has_residual && !(is_f32_rows(residual) && same_shape(*x, *residual))) return ASSAY_INVALID;
    if (has_weight && !is_vector(weight, from.width())) return ASSAY_INVALID;
    const Rows<float> to{*out}, sum{has_residual ? *residual : *out};
    if (from.width() == 0) return ASSAY_OK;
    return for_rows(s, from.count(), 2 * from.width(), [&](std::int64_t row) {
        kernels(self).rmsnorm(from[row], has_residual ? sum[row] : nullptr, floats(weight), eps,
                              to[row], from.width());
    });
}

assay_status layernorm(void* self, const assay_tensor* x, const assay_tensor* weight,
                       const assay_tensor* bias, float eps, const assay_tensor* out,
                       const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    if (!is_absent(weight) && !is_vector(weight, from.width())) return ASSAY_INVALID;
    if (!is_absent(bias) && !is_vector(bias, from.width())) return ASSAY_INVALID;
    if (from.width() == 0) return ASSAY_OK;
    return for_rows(s, from.count(), 3 * from.width(), [&](std::int64_t row) {
        kernels(self).layernorm(from[row], floats(weight), floats(bias), eps, to[row],
                                from.width());
    });
}

// ---- rope ------------------------------------------------------------------------------------

assay_status rope_table(void*, const std::int32_t* pos, std::int64_t num_tokens,
                        const double* inv_freq, std::int32_t half_dims, float mscale,
                        const assay_tensor* cos_sin, const assay_stream* s) {
    if (!is_f32_rows(cos_sin, 3) || num_tokens < 0 || half_dims < 1 ||
        cos_sin->shape[0] != num_tokens || cos_sin->shape[1] != 2 || cos_sin->shape[2] != half_dims)
        return ASSAY_INVALID;
    if (num_tokens == 0) return ASSAY_OK;
    if (pos == nullptr || inv_freq == nullptr) return ASSAY_INVALID;
    const Rows<float> table{*cos_sin};
    return for_rows(s, num_tokens, 2 * half_dims * kCostDouble, [&](std::int64_t t) {
        float *cos = table[2 * t], *sin = table[2 * t + 1];
        for (std::int32_t i = 0; i < half_dims; ++i) {
            const double angle = pos[t] * inv_freq[i];
            cos[i] = static_cast<float>(double{mscale} * std::cos(angle));
            sin[i] = static_cast<float>(double{mscale} * std::sin(angle));
        }
    });
}

assay_status rope(void* self, const assay_tensor* x, const assay_tensor* cos_sin,
                  std::int32_t style, const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(x, 3) || !is_f32_rows(out, 3) || !may_map(*x, *out) ||
        !is_f32_rows(cos_sin, 3))
        return ASSAY_INVALID;
    const std::int64_t tokens = x->shape[0], heads = x->shape[1], head_dim = x->shape[2];
    const std::int64_t half_dims = cos_sin->shape[2];
    if (cos_sin->shape[0] != tokens || cos_sin->shape[1] != 2 || half_dims < 1 ||
        2 * half_dims > head_dim || (style != ASSAY_ROPE_NORM && style != ASSAY_ROPE_NEOX))
        return ASSAY_INVALID;
    const Rows<const float> from{*x}, table{*cos_sin};
    const Rows<float> to{*out};
    return for_rows(s, tokens * heads, head_dim, [&](std::int64_t row) {
        const std::int64_t t = row / heads;
        kernels(self).rope(from[row], table[2 * t], table[2 * t + 1], style, to[row], head_dim,
                           half_dims);
    });
}

// ---- element by element ----------------------------------------------------------------------

assay_status glu(void* self, std::int32_t kind, float alpha, float limit, const assay_tensor* gate,
                 const assay_tensor* up, const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(gate) || !is_f32_rows(up) || !is_f32_rows(out) || !may_map(*gate, *out) ||
        !may_map(*up, *out) || kind < ASSAY_GLU_NONE || kind > ASSAY_GLU_SILU_CLAMP)
        return ASSAY_INVALID;
    const Rows<const float> g{*gate}, u{*up};
    const Rows<float> to{*out};
    return for_pieces(s, g.count(), g.width(), kCostExp,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).glu(kind, alpha, limit, g[row] + first, u[row] + first,
                                            to[row] + first, count);
                      });
}

assay_status add(void* self, const assay_tensor* a, const assay_tensor* b, float factor,
                 const assay_tensor* out, const assay_stream* s) {
    if (!is_f32_rows(a) || !is_f32_rows(b) || !is_f32_rows(out) || !may_map(*a, *out) ||
        !may_map(*b, *out))
        return ASSAY_INVALID;
    const Rows<const float> u{*a}, v{*b};
    const Rows<float> to{*out};
    return for_pieces(
        s, u.count(), u.width(), 1, [&](std::int64_t row, std::int64_t first, std::int64_t count) {
            kernels(self).add(u[row] + first, v[row] + first, factor, to[row] + first, count);
        });
}

assay_status scale(void* self, const assay_tensor* x, float factor, const assay_tensor* out,
                   const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    return for_pieces(s, from.count(), from.width(), 1,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).scale(from[row] + first, factor, to[row] + first, count);
                      });
}

assay_status softcap(void* self, const assay_tensor* x, float cap, const assay_tensor* out,
                     const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out) || !(cap > 0))
        return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    return for_pieces(s, from.count(), from.width(), kCostExp,
                      [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                          kernels(self).softcap(from[row] + first, cap, to[row] + first, count);
                      });
}

assay_status hadamard(void* self, const assay_tensor* x, const assay_tensor* out,
                      const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(out) || !may_map(*x, *out)) return ASSAY_INVALID;
    const Rows<const float> from{*x};
    const Rows<float> to{*out};
    const std::int64_t n = from.width();
    if (!std::has_single_bit(static_cast<std::uint64_t>(n))) return ASSAY_INVALID;
    return for_rows(s, from.count(), 4 * n,
                    [&](std::int64_t row) { kernels(self).hadamard(from[row], to[row], n); });
}

assay_status add_bias(void* self, const assay_tensor* x, const assay_tensor* bias,
                      const std::int32_t* expert_offset, const assay_stream* s) {
    if (!is_f32_rows(x) || !is_f32_rows(bias, expert_offset != nullptr ? 2 : 1))
        return ASSAY_INVALID;
    const Rows<float> rows{*x};
    const std::int64_t n = rows.width();
    if (bias->shape[bias->rank - 1] != n) return ASSAY_INVALID;
    if (expert_offset == nullptr)
        return for_rows(s, rows.count(), n, [&](std::int64_t row) {
            kernels(self).add(rows[row], floats(bias), 1.0f, rows[row], n);
        });

    const std::int64_t num_experts = bias->shape[0];
    const Rows<const float> biases{*bias};
    for (std::int64_t e = 0; e < num_experts; ++e)
        if (expert_offset[e] < 0 || expert_offset[e] > expert_offset[e + 1]) return ASSAY_INVALID;
    if (x->rank != 2 || (num_experts > 0 && expert_offset[num_experts] > rows.count()))
        return ASSAY_INVALID;
    return for_rows(s, rows.count(), n, [&](std::int64_t row) {
        // The expert whose range holds the slot: the first whose end lies beyond it.
        const std::int32_t* ends = expert_offset + 1;
        const std::int64_t e = std::upper_bound(ends, ends + num_experts, row) - ends;
        if (e < num_experts && row >= expert_offset[0])
            kernels(self).add(rows[row], biases[e], 1.0f, rows[row], n);
    });
}

// ---- experts ---------------------------------------------------------------------------------

bool is_valid(const assay_router& r, std::int64_t num_experts) {
    if (num_experts < 1 || num_experts > kMaxExperts) return false;
    if (r.gating < 1 || r.gating > 4 || r.top_k < 1 || r.top_k > num_experts) return false;
    if (r.num_groups <= 1) return r.num_groups >= 0;
    if (num_experts % r.num_groups != 0 || r.top_groups < 1 || r.top_groups > r.num_groups)
        return false;
    return r.top_k <= r.top_groups * (num_experts / r.num_groups);
}

assay_status router(void* self, const assay_router* r, const assay_tensor* logits,
                    const assay_tensor* bias, const assay_tensor* ids, const assay_tensor* weights,
                    const assay_stream* s) {
    if (r == nullptr || !is_f32_rows(logits, 2) || !is_rows(ids, ASSAY_I32, 2) ||
        !is_f32_rows(weights, 2) || !is_valid(*r, logits->shape[1]))
        return ASSAY_INVALID;
    const std::int64_t tokens = logits->shape[0], experts = logits->shape[1];
    if (ids->shape[0] != tokens || ids->shape[1] != r->top_k || !same_shape(*ids, *weights) ||
        (!is_absent(bias) && !is_vector(bias, experts)))
        return ASSAY_INVALID;
    const Rows<const float> from{*logits};
    const Rows<std::int32_t> to_ids{*ids};
    const Rows<float> to_weights{*weights};
    return for_rows(s, tokens, experts * (kCostDouble + r->top_k), [&](std::int64_t t) {
        kernels(self).router(r, from[t], floats(bias), experts, to_ids[t], to_weights[t]);
    });
}

// A counting sort: one pass to count, one to place. Serial: a step has a few thousand pairs.
assay_status expert_sort(void*, const assay_tensor* ids, std::int32_t num_experts,
                         std::int32_t* slot_of, std::int32_t* row_ids, std::int32_t* offset,
                         const assay_stream*) {
    if (!is_rows(ids, ASSAY_I32, 2) || num_experts < 1 || offset == nullptr) return ASSAY_INVALID;
    const std::int64_t tokens = ids->shape[0], top_k = ids->shape[1];
    const Rows<const std::int32_t> rows{*ids};
    if (tokens * top_k > std::numeric_limits<std::int32_t>::max() ||
        (tokens * top_k > 0 && (slot_of == nullptr || row_ids == nullptr)))
        return ASSAY_INVALID;
    std::fill(offset, offset + num_experts + 1, 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t j = 0; j < top_k; ++j) {
            const std::int32_t e = rows[t][j];
            if (e < 0 || e >= num_experts) return ASSAY_INVALID;
            ++offset[e];
        }
    }
    std::int32_t first = 0;
    for (std::int32_t e = 0; e <= num_experts; ++e) {
        const std::int32_t count = offset[e];
        offset[e] = first;
        first += count;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {  // offset[e] is the next free slot of e
        for (std::int64_t j = 0; j < top_k; ++j) {
            const std::int32_t slot = offset[rows[t][j]]++;
            slot_of[t * top_k + j] = slot;
            row_ids[slot] = static_cast<std::int32_t>(t);
        }
    }
    std::copy_backward(offset, offset + num_experts - 1, offset + num_experts);
    offset[0] = 0;
    return ASSAY_OK;
}

assay_status expert_combine(void* self, const assay_tensor* y, const std::int32_t* slot_of,
                            const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                            const assay_stream* s) {
    if (!is_f32_rows(y, 2) || !is_f32_rows(weights, 2) || !is_f32_rows(out, 2) ||
        weights->shape[0] != out->shape[0] || y->shape[1] != out->shape[1])
        return ASSAY_INVALID;
    const std::int64_t tokens = out->shape[0], n = out->shape[1], top_k = weights->shape[1];
    if (tokens * top_k > 0 && slot_of == nullptr) return ASSAY_INVALID;
    for (std::int64_t pair = 0; pair < tokens * top_k; ++pair)
        if (slot_of[pair] < 0 || slot_of[pair] >= y->shape[0]) return ASSAY_INVALID;
    const Rows<const float> w{*weights};
    const Rows<float> to{*out};
    return for_rows(s, tokens, n * (top_k + 1), [&](std::int64_t t) {
        kernels(self).expert_combine(floats(y), y->stride[0], slot_of + t * top_k, w[t], top_k,
                                     accumulate, to[t], n);
    });
}

// ---- logits ----------------------------------------------------------------------------------

assay_status logits_edit(void*, const assay_tensor* logits, const assay_logit_edit* edits,
                         std::int64_t num_edits, const assay_stream*) {
    if (!is_f32_rows(logits, 2) || num_edits < 0 || (num_edits > 0 && edits == nullptr))
        return ASSAY_INVALID;
    const Rows<float> rows{*logits};
    for (std::int64_t i = 0; i < num_edits; ++i)
        if (edits[i].row < 0 || edits[i].row >= rows.count() || edits[i].token < 0 ||
            edits[i].token >= rows.width())
            return ASSAY_INVALID;
    for (std::int64_t i = 0; i < num_edits; ++i) {
        const assay_logit_edit& e = edits[i];
        float& logit = rows[e.row][e.token];
        logit = (logit > 0 ? logit / e.repetition : logit * e.repetition) + e.add;
    }
    return ASSAY_OK;
}

assay_status logits_mask(void*, const assay_tensor* logits, const std::uint32_t* bits,
                         std::int64_t words_per_row, const std::int32_t* mask_row,
                         const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const Rows<float> rows{*logits};
    const std::int64_t n = rows.width();
    if (rows.count() == 0) return ASSAY_OK;
    if (mask_row == nullptr || words_per_row < (n + 31) / 32) return ASSAY_INVALID;
    for (std::int64_t row = 0; row < rows.count(); ++row)
        if (mask_row[row] < -1 || (mask_row[row] >= 0 && bits == nullptr)) return ASSAY_INVALID;
    return for_rows(s, rows.count(), n, [&](std::int64_t row) {
        if (mask_row[row] < 0) return;
        const std::uint32_t* words = bits + mask_row[row] * words_per_row;
        float* logit = rows[row];
        for (std::int64_t i = 0; i < n; ++i)
            if ((words[i / 32] >> (i % 32) & 1u) == 0)
                logit[i] = -std::numeric_limits<float>::infinity();
    });
}

assay_status logprobs(void* self, const assay_tensor* logits, const std::int32_t* tokens,
                      float* logprob, std::int32_t num_top, std::int32_t* top_ids,
                      float* top_logprobs, const assay_stream* s) {
    if (!is_f32_rows(logits, 2) || num_top < 0) return ASSAY_INVALID;
    const Rows<const float> rows{*logits};
    if (rows.count() == 0) return ASSAY_OK;
    if ((tokens != nullptr && logprob == nullptr) ||
        (num_top > 0 && (top_ids == nullptr || top_logprobs == nullptr)))
        return ASSAY_INVALID;
    return for_rows(s, rows.count(), kCostExp * rows.width(), [&](std::int64_t n) {
        kernels(self).logprobs(rows[n], rows.width(), tokens != nullptr ? tokens[n] : -1,
                               tokens != nullptr ? logprob + n : nullptr, num_top,
                               num_top > 0 ? top_ids + n * num_top : nullptr,
                               num_top > 0 ? top_logprobs + n * num_top : nullptr);
    });
}

assay_status sample(void* self, const assay_tensor* logits, const assay_sample_row* params,
                    std::int32_t* token, const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const Rows<const float> rows{*logits};
    if (rows.count() == 0) return ASSAY_OK;
    if (params == nullptr || token == nullptr) return ASSAY_INVALID;
    return for_rows(s, rows.count(), kCostExp * rows.width(), [&](std::int64_t n) {
        token[n] = kernels(self).sample(rows[n], rows.width(), params + n);
    });
}

assay_status supports(void*, std::int32_t op, std::int32_t dtype, assay_error* why) {
    if (op < ASSAY_OP_COPY || op > ASSAY_OP_SAMPLE)
        return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d is not one of this ABI", op);
    const bool fits = op == ASSAY_OP_COPY          ? is_float(dtype)
                      : op == ASSAY_OP_GATHER_ROWS ? is_dtype(dtype)
                                                   : dtype == ASSAY_F32;
    if (fits) return ASSAY_OK;
    return sdk::fail(why, ASSAY_UNSUPPORTED, "op %d: activations of %s, the cpu device has %s", op,
                     sdk::dtype_name(dtype), op == ASSAY_OP_COPY ? "f32, f16, bf16" : "f32");
}

}  // namespace

const assay_ops kOps = {
    sizeof(assay_ops),
    supports,
    copy,
    rmsnorm,
    layernorm,
    rope_table,
    rope,
    glu,
    add,
    scale,
    add_bias,
    hadamard,
    softcap,
    router,
    expert_sort,
    expert_combine,
    gather_rows,
    logits_edit,
    logits_mask,
    logprobs,
    sample,
};

}  // namespace cpu
