// What can be wrong with quant/1, one row each.

#include "tools/faults/quant.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace faults {
namespace {

/// Where the blocks of a format keep what a fault changes.
struct Field {
    const char* format;
    std::size_t block_bytes, begin, end;
};
// The bits above those that have a nibble, or two bits, of their own.
constexpr Field kHighBits[] = {{"q5_0", 22, 2, 6},
                               {"q5_1", 24, 4, 8},
                               {"q3_k", 110, 0, 32},
                               {"q5_k", 176, 16, 48},
                               {"q6_k", 210, 128, 192}};
// f16 scale, f16 min.
constexpr Field kScaleAndMin[] = {{"q4_1", 20, 0, 4},
                                  {"q5_1", 24, 0, 4},
                                  {"q2_k", 84, 80, 84},
                                  {"q4_k", 144, 0, 4},
                                  {"q5_k", 176, 0, 4}};

template <std::size_t N, class Change>
bool change_blocks(const Field (&fields)[N], const assay_weight& w, std::uint8_t* data,
                   Change&& change) {
    for (const Field& field : fields) {
        if (std::strcmp(field.format, w.format) != 0) continue;
        for (std::uint64_t at = 0; at + field.block_bytes <= w.data_bytes; at += field.block_bytes)
            change(data + at + field.begin, data + at + field.end);
        return true;
    }
    return false;
}

bool clear_high_bits(const assay_weight& w, std::int32_t, std::uint8_t* data) {
    return change_blocks(kHighBits, w, data, [](std::uint8_t* begin, std::uint8_t* end) {
        std::fill(begin, end, std::uint8_t{0});
    });
}

bool swap_scale_and_min(const assay_weight& w, std::int32_t, std::uint8_t* data) {
    return change_blocks(kScaleAndMin, w, data, [](std::uint8_t* begin, std::uint8_t* end) {
        std::swap_ranges(begin, end - 2, begin + 2);
    });
}

bool swap_two_experts(const assay_weight& w, std::int32_t op, std::uint8_t* data) {
    if (op != ASSAY_Q_GROUPED || w.experts < 2) return false;
    const auto bytes =
        static_cast<std::ptrdiff_t>(w.data_bytes / static_cast<std::uint64_t>(w.experts));
    std::swap_ranges(data, data + bytes, data + bytes);
    return true;
}

assay_status write_nothing(QuantCall&) {
    return ASSAY_OK;
}

assay_status write_elsewhere(QuantCall& call) {
    std::vector<float> own[ASSAY_MAX_FUSED];
    for (std::int32_t i = 0; i < call.num_outputs(); ++i) {
        assay_tensor& t = call.args.y[i];
        own[i].resize(static_cast<std::size_t>(call.num_rows() * t.stride[0]));
        t.data = own[i].data();
    }
    return call.healthy();
}

assay_status leave_last_row(QuantCall& call) {
    const std::int64_t last = call.num_rows() - 1;
    if (last < 1) return call.healthy();
    std::vector<float> held;
    call.for_row(last, [&](const float* y, std::int64_t n) { held.insert(held.end(), y, y + n); });
    const assay_status status = call.healthy();
    const float* from = held.data();
    call.for_row(last, [&](float* y, std::int64_t n) {
        std::copy(from, from + n, y);
        from += n;
    });
    return status;
}

assay_status write_past_end(QuantCall& call) {
    const assay_status status = call.healthy();
    const std::int64_t last = call.num_rows() - 1;
    if (last >= 0) call.y(0, last, call.heads() - 1)[call.width(0)] = 0.5F;
    return status;
}

/// Rows [first, num_rows) get what row 0 has.
void repeat_first_row(const QuantCall& call, std::int64_t first) {
    for (std::int64_t row = first; row < call.num_rows(); ++row)
        for (std::int32_t i = 0; i < call.num_outputs(); ++i)
            for (std::int64_t h = 0; h < call.heads(); ++h)
                std::copy_n(call.y(i, 0, h), call.width(i), call.y(i, row, h));
}

assay_status stop_at_eight_rows(QuantCall& call) {
    const assay_status status = call.healthy();
    if (call.op != ASSAY_Q_GROUPED) repeat_first_row(call, 8);
    return status;
}

assay_status forget_odd_row(QuantCall& call) {
    const assay_status status = call.healthy();
    if (call.op != ASSAY_Q_GROUPED && call.num_rows() > 1 && call.num_rows() % 2 == 1)
        repeat_first_row(call, call.num_rows() - 1);
    return status;
}

assay_status drop_last_inputs(QuantCall& call) {
    const assay_tensor x = call.args.x;
    if (x.rank != 2) return call.healthy();
    const std::int64_t n = x.shape[1], kept = std::max<std::int64_t>(0, n - 32);
    std::vector<float> copy(static_cast<std::size_t>(x.shape[0] * n));
    for (std::int64_t r = 0; r < x.shape[0]; ++r)
        std::copy_n(sdk::at<float>(x, r), kept, copy.data() + r * n);
    call.args.x = sdk::make_tensor(copy.data(), ASSAY_F32, x.shape[0], n);
    return call.healthy();
}

/// [E, N, K] read as if it lay there as [E, K, N].
assay_status read_heads_transposed(QuantCall& call) {
    if (call.op != ASSAY_Q_BATCHED) return call.healthy();
    const assay_weight& w = *call.args.w[0];
    std::vector<std::int32_t> ids(static_cast<std::size_t>(w.experts * w.rows));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    std::vector<float> decoded(ids.size() * static_cast<std::size_t>(w.cols));
    const assay_tensor out = sdk::make_tensor(decoded.data(), ASSAY_F32, ids.size(), w.cols);
    const assay_status status =
        call.in.rows(call.in.self, &w, ids.data(), static_cast<std::int64_t>(ids.size()), &out,
                     call.stream, call.err);
    for (std::int64_t m = 0; m < call.num_rows(); ++m)
        for (std::int64_t e = 0; e < w.experts; ++e) {
            const float* x = static_cast<const float*>(call.args.x.data) +
                             m * call.args.x.stride[0] + e * call.args.x.stride[1];
            const float* head = decoded.data() + e * w.rows * w.cols;
            for (std::int64_t n = 0; n < w.rows; ++n) {
                double sum = 0;
                for (std::int64_t k = 0; k < w.cols; ++k)
                    sum += double{head[k * w.rows + n]} * double{x[k]};
                call.y(0, m, e)[n] = static_cast<float>(sum);
            }
        }
    return status;
}

assay_status swap_gate_and_up(QuantCall& call) {
    if (call.args.glu != ASSAY_GLU_NONE) {
        std::swap(call.args.w[0], call.args.w[1]);
        std::swap(call.args.bias[0], call.args.bias[1]);
    }
    return call.healthy();
}

assay_status swap_fused_outputs(QuantCall& call) {
    if (call.args.glu == ASSAY_GLU_NONE)
        for (std::int32_t i = 1; i < call.args.num_weights; ++i)
            if (call.width(i) == call.width(i - 1)) std::swap(call.args.y[i], call.args.y[i - 1]);
    return call.healthy();
}

assay_status forget_residual(QuantCall& call) {
    call.args.flags &= ~ASSAY_MM_ACCUMULATE;
    return call.healthy();
}

assay_status forget_bias(QuantCall& call) {
    for (assay_tensor& bias : call.args.bias) bias.data = nullptr;
    return call.healthy();
}

assay_status round_inputs(QuantCall& call) {
    call.args.flags &= ~(ASSAY_MM_PRECISE | ASSAY_MM_FINE);
    return call.healthy();
}

assay_status forget_clamp(QuantCall& call) {
    if (call.args.glu == ASSAY_GLU_SILU_CLAMP) call.args.glu_limit = 1e30F;
    return call.healthy();
}

assay_status use_silu(QuantCall& call) {
    if (call.args.glu == ASSAY_GLU_GELU_TANH) call.args.glu = ASSAY_GLU_SILU;
    return call.healthy();
}

assay_status differ_in_turn(QuantCall& call) {
    const assay_status status = call.healthy();
    if (call.in.num_calls % 2 == 0 && call.num_rows() > 0)
        call.for_row(0, [](float* y, std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i)
                y[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y[i]) ^ 1U);
        });
    return status;
}

assay_status make_nan(QuantCall& call) {
    const assay_status status = call.healthy();
    if (call.num_rows() > 0)
        call.y(0, call.num_rows() - 1)[0] = std::numeric_limits<float>::quiet_NaN();
    return status;
}

/// A step that no longer depends on its input.
assay_status write_constant(QuantCall& call) {
    for (std::int64_t row = 0; row < call.num_rows(); ++row)
        call.for_row(row, [](float* y, std::int64_t n) { std::fill_n(y, n, 1.0F); });
    return ASSAY_OK;
}

/// One answer for ever: a single logit far above the others.
assay_status write_one_answer(QuantCall& call) {
    const assay_status status = call.healthy();
    for (std::int64_t row = 0; row < call.num_rows(); ++row)
        call.for_row(row, [](float* y, std::int64_t n) {
            if (n > 7) y[7] = 1e4F;
        });
    return status;
}

assay_status fail_aloud(QuantCall& call) {
    return sdk::fail(call.err, ASSAY_INTERNAL, "the kernel could not be launched");
}

assay_status never_return(QuantCall&) {
    hang();
}

void take_next_row(std::vector<std::int32_t>& ids, std::int64_t num_rows) {
    for (std::int32_t& id : ids)
        if (id >= 0 && id + 1 < num_rows) ++id;
}

bool lacks_any(const assay_quant_query&) {
    return true;
}
bool lacks_grouped(const assay_quant_query& query) {
    return query.op == ASSAY_Q_GROUPED;
}

constexpr QuantFault kFaults[] = {
    {.id = "silent", .what = "returns OK and writes nothing", .product = write_nothing},
    {.id = "private-buffer",
     .what = "writes its result into memory of its own",
     .product = write_elsewhere},
    {.id = "last-row", .what = "does not write the last row of several", .product = leave_last_row},
    {.id = "past-end", .what = "writes one element behind the last", .product = write_past_end},
    {.id = "batch-9",
     .what = "from the ninth row on gives the first row's result",
     .product = stop_at_eight_rows},
    {.id = "odd-rows",
     .what = "of an odd number of rows gives the last the first row's result",
     .product = forget_odd_row},
    {.id = "k-tail", .what = "ignores the last 32 inputs", .product = drop_last_inputs},
    {.id = "experts-swapped", .what = "experts 0 and 1 exchanged", .alter = swap_two_experts},
    {.id = "transposed",
     .what = "per-head matrices read transposed",
     .product = read_heads_transposed},
    {.id = "gate-up-swapped",
     .what = "gate and up of the fused product exchanged",
     .product = swap_gate_and_up},
    {.id = "fused-order",
     .what = "outputs of a fused product in another order",
     .product = swap_fused_outputs},
    {.id = "residual-lost", .what = "overwrites where it should add", .product = forget_residual},
    {.id = "bias-ignored", .what = "leaves biases out", .product = forget_bias},
    {.id = "coarse-inputs",
     .what = "rounds inputs to 8 bits where f32 was asked for",
     .product = round_inputs},
    {.id = "clamp-ignored", .what = "the gate's limit is not applied", .product = forget_clamp},
    {.id = "silu-for-gelu", .what = "SiLU in place of GELU", .product = use_silu},
    {.id = "high-bits",
     .what = "the high bits of quantized values read as 0",
     .alter = clear_high_bits},
    {.id = "scale-min",
     .what = "scale and minimum of a block exchanged",
     .alter = swap_scale_and_min},
    {.id = "next-row", .what = "gathers the embedding of the next token", .ids = take_next_row},
    {.id = "race",
     .what = "the same call gives other bits every second time",
     .product = differ_in_turn},
    {.id = "nan", .what = "one NaN in the last row", .product = make_nan},
    {.id = "constant", .what = "every output is 1", .product = write_constant},
    {.id = "stuck", .what = "output 7 is always the largest", .product = write_one_answer},
    {.id = "status", .what = "returns an error", .product = fail_aloud},
    {.id = "hang", .what = "does not return", .product = never_return},
    {.id = "no-format", .what = "has no kernel for a format", .lacks = lacks_any},
    {.id = "no-grouped", .what = "has no product for experts", .lacks = lacks_grouped},
};

}  // namespace

const QuantFault* find_quant_fault(const std::string& id) {
    return find(kFaults, id);
}

}  // namespace faults
