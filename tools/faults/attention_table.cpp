// What can be wrong with attention/1, one row each.

#include "tools/faults/attention.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace faults {
namespace {

// ---- layers that a wrong instance is made for ---------------------------------------------------

void scale_by_head_only(
    assay_attn_layer& layer) {  // as if the rotated part were not in the product
    layer.softmax_scale *= 1.05F;
}
void see_everything(assay_attn_layer& layer) {
    layer.window = 0;
}
void see_one_more(assay_attn_layer& layer) {
    if (layer.window > 0) ++layer.window;
}
void forget_sinks(assay_attn_layer& layer) {
    layer.has_sinks = false;
}
void forget_softcap(assay_attn_layer& layer) {
    layer.logit_softcap = 0;
}

// ---- run
// ------------------------------------------------------------------------------------------

assay_status run_without_sinks(RunCall& call) {
    call.args.sinks = {};
    return call.wrong();
}

assay_status run_wrong_decode(RunCall& call) {
    return call.args.phase == ASSAY_DECODE ? call.wrong() : call.healthy();
}

/// A flag of the prefill before is still set when decode begins.
assay_status run_wrong_after_prefill(RunCall& call) {
    const bool is_stale = call.args.phase == ASSAY_DECODE && call.in.last_phase != ASSAY_DECODE;
    return is_stale ? call.wrong() : call.healthy();
}

assay_status write_nothing(RunCall&) {
    return ASSAY_OK;
}

assay_status prefill_nothing(RunCall& call) {
    return call.args.phase == ASSAY_DECODE ? call.healthy() : ASSAY_OK;
}

assay_status refuse_prefill(RunCall& call) {
    if (call.args.phase == ASSAY_DECODE) return call.healthy();
    return sdk::fail(call.err, ASSAY_UNSUPPORTED, "forward_prefill is not implemented");
}

assay_status write_elsewhere(RunCall& call) {
    const std::int64_t rows = call.batch().cu_q[call.batch().num_seqs];
    std::vector<float> own(static_cast<std::size_t>(rows * call.args.out.stride[0] + 1));
    call.args.out.data = own.data();
    return call.healthy();
}

/// Runs, and puts back what the chosen rows and heads held before. choose(sequence, row, head).
template <class Choose>
assay_status leave_unwritten(RunCall& call, Choose&& choose) {
    struct Held {
        float* at;
        std::vector<float> values;
    };
    std::vector<Held> held;
    for_each_query(call.batch(), [&](std::int32_t seq, std::int32_t row, std::int32_t) {
        for (std::int64_t h = 0; h < call.heads(); ++h)
            if (choose(seq, row, h))
                held.push_back(
                    {call.out(row, h), {call.out(row, h), call.out(row, h) + call.width()}});
    });
    const assay_status status = call.healthy();
    for (const Held& piece : held) std::copy(piece.values.begin(), piece.values.end(), piece.at);
    return status;
}

assay_status leave_last_row(RunCall& call) {
    const assay_attn_batch& b = call.batch();
    const std::int32_t last = b.cu_q[b.num_seqs] - 1;
    return leave_unwritten(call, [&](std::int32_t, std::int32_t row, std::int64_t) {
        return row == last && last > b.cu_q[0];
    });
}

assay_status leave_last_head(RunCall& call) {
    return leave_unwritten(call, [&](std::int32_t, std::int32_t, std::int64_t head) {
        return head == call.heads() - 1;
    });
}

/// Sequences behind one without a query are passed over.
assay_status stop_at_empty_sequence(RunCall& call) {
    const assay_attn_batch& b = call.batch();
    std::int32_t empty = b.num_seqs;
    for (std::int32_t i = b.num_seqs - 1; i >= 0; --i)
        if (b.cu_q[i] == b.cu_q[i + 1]) empty = i;
    return leave_unwritten(
        call, [&](std::int32_t seq, std::int32_t, std::int64_t) { return seq > empty; });
}

assay_status write_past_end(RunCall& call) {
    const assay_status status = call.healthy();
    const std::int32_t rows = call.batch().cu_q[call.batch().num_seqs];
    if (rows > 0) call.out(rows - 1, call.heads() - 1)[call.width()] = 0.5F;
    return status;
}

assay_status write_before_begin(RunCall& call) {
    const assay_status status = call.healthy();
    if (call.batch().num_tokens > 0) call.out(call.batch().cu_q[0], 0)[-1] = 0.5F;
    return status;
}

/// Every query sees the token after it, where one is cached: the queries of a sequence but the
/// last, taken for one step later.
assay_status see_next_token(RunCall& call) {
    const assay_attn_batch& whole = call.batch();
    const assay_status status = call.healthy();
    if (status != ASSAY_OK) return status;
    for (std::int32_t i = 0; i < whole.num_seqs; ++i) {
        const std::int32_t begin = whole.cu_q[i], end = whole.cu_q[i + 1];
        if (end - begin < 2) continue;
        const std::int32_t cu_q[] = {begin, end - 1};
        assay_attn_batch one = whole;
        one.num_seqs = 1;
        one.num_decode_seqs = 0;
        one.num_tokens = one.max_q_len = end - begin - 1;
        one.cu_q = one.host_cu_q = cu_q;
        one.kv_len = one.host_kv_len = whole.kv_len + i;
        one.block_table = whole.block_table + std::int64_t{i} * whole.max_blocks;
        RunCall shifted = call;
        shifted.args.batch = &one;
        shifted.args.phase = ASSAY_PREFILL;
        const assay_status other = shifted.healthy();
        if (other != ASSAY_OK) return other;
    }
    return ASSAY_OK;
}

/// A token does not see itself, where something is cached before the step.
assay_status miss_own_token(RunCall& call) {
    BatchCopy copy{call.batch()};
    for (std::int32_t i = 0; i < copy.batch.num_seqs; ++i) {
        const auto s = static_cast<std::size_t>(i);
        if (copy.kv_len[s] > copy.cu_q[s + 1] - copy.cu_q[s]) --copy.kv_len[s];
    }
    call.args.batch = copy.get();
    return call.healthy();
}

/// The second page of a sequence is read from the first.
assay_status read_first_page_twice(RunCall& call) {
    BatchCopy copy{call.batch()};
    for (std::int32_t i = 0; i < copy.batch.num_seqs; ++i) {
        if (copy.kv_len[static_cast<std::size_t>(i)] <= call.in.page_tokens) continue;
        const auto at = static_cast<std::size_t>(std::int64_t{i} * copy.batch.max_blocks);
        copy.block_table[at + 1] = copy.block_table[at];
    }
    call.args.batch = copy.get();
    return call.healthy();
}

/// Sequences behind the first read the first one's pages.
assay_status read_first_sequence(RunCall& call) {
    BatchCopy copy{call.batch()};
    const auto blocks = static_cast<std::size_t>(copy.batch.max_blocks);
    for (std::size_t i = 1; i < static_cast<std::size_t>(copy.batch.num_seqs); ++i)
        for (std::size_t b = 0; b < blocks; ++b)
            if (copy.block_table[b] >= 0 && copy.block_table[i * blocks + b] >= 0)
                copy.block_table[i * blocks + b] = copy.block_table[b];
    call.args.batch = copy.get();
    return call.healthy();
}

/// Queries beyond index_topk see half of what was chosen for them.
assay_status drop_half_of_selection(RunCall& call) {
    assay_tensor& topk = call.args.topk_slots;
    if (topk.data == nullptr) return call.healthy();
    const std::int32_t rows = call.batch().cu_q[call.batch().num_seqs];
    const std::int64_t n = topk.shape[1];
    std::vector<std::int32_t> copy(static_cast<std::size_t>(rows * n), -1);
    for_each_query(call.batch(), [&](std::int32_t, std::int32_t row, std::int32_t position) {
        const std::int32_t* from = sdk::at<std::int32_t>(topk, row);
        std::copy_n(from, position >= n ? n / 2 : n, copy.data() + row * n);
    });
    topk.data = copy.data();
    topk.stride[0] = n;
    return call.healthy();
}

/// The last element of every query's head takes no part.
assay_status shorten_heads(RunCall& call) {
    assay_tensor& q = call.args.q;
    const std::int32_t rows = call.batch().cu_q[call.batch().num_seqs];
    const std::int64_t heads = q.shape[1], n = q.shape[2];
    std::vector<float> copy(static_cast<std::size_t>(rows * heads * n));
    for (std::int64_t r = call.batch().cu_q[0]; r < rows; ++r)
        for (std::int64_t h = 0; h < heads; ++h)
            std::copy_n(sdk::at<float>(q, r, h), n - 1, copy.data() + (r * heads + h) * n);
    q.data = copy.data();
    q.stride[0] = heads * n;
    q.stride[1] = n;
    return call.healthy();
}

template <class Change>
assay_status change_outputs(RunCall& call, Change&& change) {
    const assay_status status = call.healthy();
    for_each_query(call.batch(), [&](std::int32_t, std::int32_t row, std::int32_t) {
        for (std::int64_t h = 0; h < call.heads(); ++h) change(call.out(row, h), call.width());
    });
    return status;
}

assay_status differ_in_turn(RunCall& call) {
    if (call.in.num_runs % 2 != 0) return call.healthy();
    return change_outputs(call, [](float* out, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i)
            out[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(out[i]) ^ 1U);
    });
}

constexpr std::int64_t kHealthyDecodeSteps = 100;

assay_status drift(RunCall& call) {
    const std::int64_t late = call.in.decode_steps - kHealthyDecodeSteps;
    if (late <= 0) return call.healthy();
    const float factor = 1.0F + 1e-3F * static_cast<float>(late);
    return change_outputs(call, [&](float* out, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) out[i] *= factor;
    });
}

assay_status make_nan(RunCall& call) {
    return change_outputs(
        call, [](float* out, std::int64_t) { out[0] = std::numeric_limits<float>::quiet_NaN(); });
}

assay_status fail_aloud(RunCall& call) {
    return sdk::fail(call.err, ASSAY_INTERNAL, "the kernel could not be launched");
}

assay_status never_return(RunCall&) {
    hang();
}

// ---- append
// ---------------------------------------------------------------------------------------

/// Keys with the mantissa of an 8-bit float, in a cache that says it holds more.
assay_status store_coarse_keys(RunCall& call) {
    assay_tensor& k = call.args.k;
    const std::int32_t rows = call.batch().cu_q[call.batch().num_seqs];
    const std::int64_t heads = k.rank == 3 ? k.shape[1] : 1, n = k.shape[k.rank - 1];
    std::vector<float> copy(static_cast<std::size_t>(rows * heads * n));
    for (std::int64_t r = call.batch().cu_q[0]; r < rows; ++r)
        for (std::int64_t h = 0; h < heads; ++h) {
            const float* from = static_cast<const float*>(k.data) + r * k.stride[0] +
                                (k.rank == 3 ? h * k.stride[1] : 0);
            float* to = copy.data() + (r * heads + h) * n;
            for (std::int64_t i = 0; i < n; ++i)
                to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(from[i]) & 0xfff00000U);
        }
    k.data = copy.data();
    k.stride[0] = heads * n;
    if (k.rank == 3) k.stride[1] = n;
    return call.store();
}

assay_status forget_last_token(RunCall& call) {
    BatchCopy copy{call.batch()};
    if (copy.slot_map.size() > static_cast<std::size_t>(copy.cu_q.front()) + 1)
        copy.slot_map.back() = -1;
    call.args.batch = copy.get();
    return call.store();
}

/// Of several decoding sequences the second's token also takes the place of the first's.
assay_status overwrite_neighbour(RunCall& call) {
    const assay_status status = call.store();
    const assay_attn_batch& b = call.batch();
    if (status != ASSAY_OK || b.num_decode_seqs < 2) return status;
    BatchCopy copy{b};
    const auto first = static_cast<std::size_t>(copy.cu_q[0]),
               second = static_cast<std::size_t>(copy.cu_q[1]);
    const std::int32_t victim = copy.slot_map[first];
    std::fill(copy.slot_map.begin(), copy.slot_map.end(), -1);
    copy.slot_map[second] = victim;
    call.args.batch = copy.get();
    return call.store();
}

// ---- index
// ----------------------------------------------------------------------------------------

/// Beyond index_topk one chosen position is lost.
assay_status lose_one(IndexCall& call) {
    const assay_status status = call.healthy();
    for_each_query(*call.args.batch, [&](std::int32_t, std::int32_t row, std::int32_t position) {
        if (position >= call.topk()) call.slots(row)[0] = -1;
    });
    return status;
}

/// Beyond index_topk the first positions are taken, not the best.
assay_status take_first(IndexCall& call) {
    const assay_status status = call.healthy();
    const assay_attn_batch& b = *call.args.batch;
    const std::int32_t page = call.in.page_tokens;
    for_each_query(b, [&](std::int32_t seq, std::int32_t row, std::int32_t position) {
        if (position < call.topk()) return;
        const std::int32_t* table = b.block_table + std::int64_t{seq} * b.max_blocks;
        for (std::int32_t j = 0; j < call.topk(); ++j)
            call.slots(row)[j] = table[j / page] * page + j % page;
    });
    return status;
}

assay_status weigh_heads_alike(IndexCall& call) {
    const std::int32_t rows = call.args.batch->cu_q[call.args.batch->num_seqs];
    const std::int64_t heads = call.args.head_weight.shape[1];
    std::vector<float> ones(static_cast<std::size_t>(rows * heads), 1.0F);
    call.args.head_weight =
        sdk::make_tensor(ones.data(), ASSAY_F32, call.args.head_weight.shape[0], heads);
    return call.healthy();
}

constexpr AttentionFault kFaults[] = {
    {.id = "silent", .what = "returns OK and writes nothing", .run = write_nothing},
    {.id = "private-buffer",
     .what = "writes its result into memory of its own",
     .run = write_elsewhere},
    {.id = "prefill-nothing",
     .what = "prefill returns OK and writes nothing",
     .run = prefill_nothing},
    {.id = "prefill-refused",
     .what = "declares prefill and refuses it when called",
     .run = refuse_prefill},
    {.id = "last-row", .what = "does not write the last row of several", .run = leave_last_row},
    {.id = "last-head", .what = "does not write the last head", .run = leave_last_head},
    {.id = "zero-length",
     .what = "passes over sequences behind an empty one",
     .run = stop_at_empty_sequence},
    {.id = "past-end", .what = "writes one element behind the last", .run = write_past_end},
    {.id = "before-begin",
     .what = "writes one element before the first",
     .run = write_before_begin},
    {.id = "scale", .what = "softmax scale 5 % too large", .alter = scale_by_head_only},
    {.id = "decode-scale",
     .what = "softmax scale 5 % too large in decode alone",
     .alter = scale_by_head_only,
     .run = run_wrong_decode},
    {.id = "stale-prefill",
     .what = "the first decode after a prefill runs with another scale",
     .alter = scale_by_head_only,
     .run = run_wrong_after_prefill},
    {.id = "mask-future",
     .what = "causal mask off by one: sees the next token",
     .run = see_next_token},
    {.id = "mask-self",
     .what = "causal mask off by one: does not see its own token",
     .run = miss_own_token},
    {.id = "second-page",
     .what = "reads the first page in place of the second",
     .run = read_first_page_twice},
    {.id = "ragged",
     .what = "sequences behind the first read its pages",
     .run = read_first_sequence},
    {.id = "past-topk",
     .what = "beyond index_topk sees half of the selection",
     .run = drop_half_of_selection},
    {.id = "topk-loses-one",
     .what = "beyond index_topk one chosen position is lost",
     .index = lose_one},
    {.id = "topk-first",
     .what = "beyond index_topk takes the first positions, not the best",
     .index = take_first},
    {.id = "index-unweighted", .what = "index heads weigh alike", .index = weigh_heads_alike},
    {.id = "window-ignored", .what = "the sliding window is not applied", .alter = see_everything},
    {.id = "window-off-by-one",
     .what = "the sliding window is one token longer",
     .alter = see_one_more},
    {.id = "sinks-ignored",
     .what = "sinks are left out",
     .alter = forget_sinks,
     .run = run_without_sinks},
    {.id = "softcap-ignored", .what = "scores are not capped", .alter = forget_softcap},
    {.id = "head-dim-short",
     .what = "the last element of each query takes no part",
     .run = shorten_heads},
    {.id = "coarse-keys",
     .what = "keys are stored with three bits of mantissa",
     .append = store_coarse_keys},
    {.id = "last-token",
     .what = "the last token of a chunk is not stored",
     .append = forget_last_token},
    {.id = "race",
     .what = "the same call gives other bits every second time",
     .run = differ_in_turn},
    {.id = "drift", .what = "after 100 decode steps the result grows", .run = drift},
    {.id = "nan", .what = "a NaN in every head", .run = make_nan},
    {.id = "overwritten",
     .what = "one sequence's token lands in another's cache",
     .append = overwrite_neighbour},
    {.id = "status", .what = "returns an error", .run = fail_aloud},
    {.id = "hang", .what = "does not return", .run = never_return},
};

}  // namespace

const AttentionFault* find_attention_fault(const std::string& id) {
    return find(kFaults, id);
}

}  // namespace faults
