// device/1 of the image: the wrapped device, whose ops are wrong where the fault says.

#include "tools/faults/fault.hpp"
#include "tools/faults/healthy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

namespace faults {
namespace {

enum class Wrong {
    none,
    rope_style,
    index_rope_style,
    index_rope_absent,
    rope_position,
    norm_eps,
    norm_row,
    layernorm_bias,
    router_softmax,
    router_bias,
    router_scale,
    router_unnormalized,
    expert_rows,
    combine,
    scale_ignored,
    residual_scale,
    gather,
    sample,
    mask,
    logprobs,
    race,
    status,
    hang
};

struct DeviceFault {
    const char* id;
    const char* what;
    Wrong wrong;
};

constexpr DeviceFault kFaults[] = {
    {"rope-style", "RoPE pairs of the other style", Wrong::rope_style},
    {"index-rope-style",
     "RoPE pairs of the other style where part of a head is rotated: the indexer's",
     Wrong::index_rope_style},
    {"index-rope-absent", "no RoPE where part of a head is rotated: the indexer's",
     Wrong::index_rope_absent},
    {"rope-position", "positions begin at 1", Wrong::rope_position},
    {"norm-eps", "RMS norm with 100 times the epsilon", Wrong::norm_eps},
    {"norm-last-row", "RMS norm leaves the last row of several", Wrong::norm_row},
    {"layernorm-bias", "layer norm without its bias", Wrong::layernorm_bias},
    {"router-softmax", "softmax in place of the sigmoid gate", Wrong::router_softmax},
    {"router-bias", "the routing bias is ignored", Wrong::router_bias},
    {"router-scale", "the routed scale is ignored", Wrong::router_scale},
    {"router-unnormalized", "chosen weights are not normalised", Wrong::router_unnormalized},
    {"expert-rows", "two slots of the sorted rows exchanged", Wrong::expert_rows},
    {"combine", "the last choice takes no part in the sum", Wrong::combine},
    {"scale-ignored", "scale() copies", Wrong::scale_ignored},
    {"residual-scale", "add() adds half", Wrong::residual_scale},
    {"gather", "rows gathered one too early", Wrong::gather},
    {"sample", "greedy takes the second best", Wrong::sample},
    {"mask", "masked tokens stay", Wrong::mask},
    {"logprobs", "log-probabilities of the token before", Wrong::logprobs},
    {"race", "RMS norm gives other bits every second time", Wrong::race},
    {"status", "RMS norm returns an error", Wrong::status},
    {"hang", "RMS norm does not return", Wrong::hang},
};

/// The bases are the wrapped device's tables.
struct DeviceInstance : assay_device, assay_ops {
    explicit DeviceInstance(const Options& options)
        : assay_device{*healthy().device}, assay_ops{*healthy().device->ops}, trigger{options} {}
    void* self = nullptr;  // of the wrapped device
    Wrong wrong = Wrong::none;
    Trigger trigger;
    std::atomic<std::uint64_t> num_calls{0};

    [[nodiscard]] bool is(Wrong what) const { return wrong == what && trigger.is_on(); }
    [[nodiscard]] const assay_ops& op() const { return *this; }
};

DeviceInstance& instance(void* self) {
    return *static_cast<DeviceInstance*>(self);
}

assay_status open(const assay_host* host, const assay_device_config* config, void** self,
                  assay_device_ref* ref, assay_error* err) {
    return sdk::guard(err, [&] {
        const Options options = read_options(*config);
        auto in = std::make_unique<DeviceInstance>(options);
        const DeviceFault* fault = find(kFaults, options.fault);
        if (fault != nullptr) in->wrong = fault->wrong;
        const assay_device_config ours = without_ours(*config, options);
        const assay_status status = healthy().device->open(host, &ours, &in->self, ref, err);
        if (status == ASSAY_OK) *self = in.release();
        return status;
    });
}

void close(void* self) {
    healthy().device->close(instance(self).self);
    delete &instance(self);
}

assay_status rope_table(void* self, const int32_t* pos, int64_t n, const double* inv_freq,
                        int32_t half, float mscale, const assay_tensor* cos_sin,
                        const assay_stream* s) {
    DeviceInstance& in = instance(self);
    in.trigger.begin_step();  // once a step and RoPE
    std::vector<std::int32_t> shifted(pos, pos + n);
    if (in.is(Wrong::rope_position))
        for (std::int32_t& p : shifted) ++p;
    return in.op().rope_table(in.self, shifted.data(), n, inv_freq, half, mscale, cos_sin, s);
}

assay_status rope(void* self, const assay_tensor* x, const assay_tensor* cos_sin, int32_t style,
                  const assay_tensor* out, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    const bool is_part = x->shape[2] > 2 * cos_sin->shape[2];
    if (is_part && in.is(Wrong::index_rope_absent)) return in.op().copy(in.self, x, out, s);
    if (in.is(Wrong::rope_style) || (is_part && in.is(Wrong::index_rope_style)))
        style = style == ASSAY_ROPE_NORM ? ASSAY_ROPE_NEOX : ASSAY_ROPE_NORM;
    return in.op().rope(in.self, x, cos_sin, style, out, s);
}

assay_status rmsnorm(void* self, const assay_tensor* x, const assay_tensor* residual,
                     const assay_tensor* weight, float eps, const assay_tensor* out,
                     const assay_stream* s) {
    DeviceInstance& in = instance(self);
    if (in.is(Wrong::status)) return ASSAY_INTERNAL;
    if (in.is(Wrong::hang)) hang();
    if (in.is(Wrong::norm_eps)) eps *= 100;
    const std::int64_t rows = x->shape[0];
    std::vector<float> held;
    float* const last = x->rank == 2 && rows > 1 ? sdk::at<float>(*out, rows - 1) : nullptr;
    if (last != nullptr) held.assign(last, last + out->shape[1]);
    const assay_status status = in.op().rmsnorm(in.self, x, residual, weight, eps, out, s);
    if (in.is(Wrong::norm_row) && last != nullptr) std::copy(held.begin(), held.end(), last);
    if (in.is(Wrong::race) && ++in.num_calls % 2 == 0 && rows > 0) {
        float& first = *static_cast<float*>(out->data);
        first = std::bit_cast<float>(std::bit_cast<std::uint32_t>(first) ^ 1U);
    }
    return status;
}

assay_status layernorm(void* self, const assay_tensor* x, const assay_tensor* weight,
                       const assay_tensor* bias, float eps, const assay_tensor* out,
                       const assay_stream* s) {
    DeviceInstance& in = instance(self);
    return in.op().layernorm(in.self, x, weight, in.is(Wrong::layernorm_bias) ? nullptr : bias, eps,
                             out, s);
}

assay_status router(void* self, const assay_router* r, const assay_tensor* logits,
                    const assay_tensor* bias, const assay_tensor* ids, const assay_tensor* weights,
                    const assay_stream* s) {
    DeviceInstance& in = instance(self);
    assay_router rule = *r;
    if (in.is(Wrong::router_softmax)) rule.gating = 1;
    if (in.is(Wrong::router_scale)) rule.scale = 1;
    if (in.is(Wrong::router_unnormalized)) rule.normalize = false;
    return in.op().router(in.self, &rule, logits, in.is(Wrong::router_bias) ? nullptr : bias, ids,
                          weights, s);
}

assay_status expert_sort(void* self, const assay_tensor* ids, int32_t num_experts, int32_t* slot_of,
                         int32_t* row_ids, int32_t* offset, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    const assay_status status =
        in.op().expert_sort(in.self, ids, num_experts, slot_of, row_ids, offset, s);
    const std::int64_t slots = ids->shape[0] * ids->shape[1];
    if (in.is(Wrong::expert_rows) && slots > 1) std::swap(row_ids[0], row_ids[slots - 1]);
    return status;
}

assay_status expert_combine(void* self, const assay_tensor* y, const int32_t* slot_of,
                            const assay_tensor* weights, bool accumulate, const assay_tensor* out,
                            const assay_stream* s) {
    DeviceInstance& in = instance(self);
    if (!in.is(Wrong::combine))
        return in.op().expert_combine(in.self, y, slot_of, weights, accumulate, out, s);
    const std::int64_t rows = weights->shape[0], k = weights->shape[1];
    std::vector<float> copy;
    for (std::int64_t r = 0; r < rows; ++r) {
        copy.insert(copy.end(), sdk::at<float>(*weights, r), sdk::at<float>(*weights, r) + k);
        copy.back() = 0;
    }
    const assay_tensor without_last = sdk::make_tensor(copy.data(), ASSAY_F32, rows, k);
    return in.op().expert_combine(in.self, y, slot_of, &without_last, accumulate, out, s);
}

assay_status scale(void* self, const assay_tensor* x, float factor, const assay_tensor* out,
                   const assay_stream* s) {
    DeviceInstance& in = instance(self);
    return in.op().scale(in.self, x, in.is(Wrong::scale_ignored) ? 1 : factor, out, s);
}

assay_status add(void* self, const assay_tensor* a, const assay_tensor* b, float factor,
                 const assay_tensor* out, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    return in.op().add(in.self, a, b, in.is(Wrong::residual_scale) ? factor / 2 : factor, out, s);
}

assay_status gather_rows(void* self, const assay_tensor* x, const int32_t* rows,
                         const assay_tensor* out, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    std::vector<std::int32_t> ids(rows, rows + out->shape[0]);
    if (in.is(Wrong::gather))
        for (std::int32_t& id : ids) id = std::max(0, id - 1);
    return in.op().gather_rows(in.self, x, ids.data(), out, s);
}

assay_status logits_mask(void* self, const assay_tensor* logits, const uint32_t* bits,
                         int64_t words_per_row, const int32_t* mask_row, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    if (in.is(Wrong::mask)) return ASSAY_OK;
    return in.op().logits_mask(in.self, logits, bits, words_per_row, mask_row, s);
}

assay_status logprobs(void* self, const assay_tensor* logits, const int32_t* tokens, float* logprob,
                      int32_t num_top, int32_t* top_ids, float* top_logprobs,
                      const assay_stream* s) {
    DeviceInstance& in = instance(self);
    std::vector<std::int32_t> shifted;
    if (tokens != nullptr) shifted.assign(tokens, tokens + logits->shape[0]);
    if (in.is(Wrong::logprobs))
        for (std::int32_t& token : shifted) token = std::max(0, token - 1);
    return in.op().logprobs(in.self, logits, tokens != nullptr ? shifted.data() : nullptr, logprob,
                            num_top, top_ids, top_logprobs, s);
}

assay_status sample(void* self, const assay_tensor* logits, const assay_sample_row* rows,
                    int32_t* token, const assay_stream* s) {
    DeviceInstance& in = instance(self);
    const assay_status status = in.op().sample(in.self, logits, rows, token, s);
    if (!in.is(Wrong::sample)) return status;
    for (std::int64_t r = 0; r < logits->shape[0]; ++r) {
        if (rows[r].temperature != 0 || token[r] < 0 || logits->shape[1] < 2) continue;
        const float* row = sdk::at<float>(*logits, r);
        std::int32_t second = token[r] == 0 ? 1 : 0;
        for (std::int32_t i = 0; i < logits->shape[1]; ++i)
            if (i != token[r] && row[i] > row[second]) second = i;
        token[r] = second;
    }
    return status;
}

/// Puts a call that passes our self on as the wrapped device's in the place of each call that is
/// there.
template <auto... kMembers, class Table>
void forward(Table& table) {
    ((table.*kMembers =
          table.*kMembers == nullptr ? nullptr : Forward<DeviceInstance, kMembers>::call),
     ...);
}

}  // namespace

void make_device_table(assay_device& table, assay_ops& ops) {
    table = *healthy().device;
    forward<&assay_device::alloc, &assay_device::free, &assay_device::memory,
            &assay_device::stream_create, &assay_device::stream_destroy, &assay_device::stream_sync,
            &assay_device::event_create, &assay_device::event_destroy, &assay_device::event_record,
            &assay_device::event_wait, &assay_device::event_done, &assay_device::event_sync,
            &assay_device::event_elapsed_us, &assay_device::copy, &assay_device::fill,
            &assay_device::capture_begin, &assay_device::capture_end, &assay_device::graph_launch,
            &assay_device::graph_destroy>(table);
    table.open = open;
    table.close = close;
    table.collectives = nullptr;
    table.collectives_absent = "the faults are for one rank";

    ops = *healthy().device->ops;
    forward<&assay_ops::supports, &assay_ops::copy, &assay_ops::glu, &assay_ops::add_bias,
            &assay_ops::hadamard, &assay_ops::softcap, &assay_ops::logits_edit>(ops);
    ops.rmsnorm = rmsnorm;
    ops.layernorm = layernorm;
    ops.rope_table = rope_table;
    ops.rope = rope;
    ops.add = add;
    ops.scale = scale;
    ops.router = router;
    ops.expert_sort = expert_sort;
    ops.expert_combine = expert_combine;
    ops.gather_rows = gather_rows;
    ops.logits_mask = logits_mask;
    ops.logprobs = logprobs;
    ops.sample = sample;
    table.ops = &ops;
}

}  // namespace faults
