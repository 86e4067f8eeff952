// The forwarding side of attention/1; what is wrong is in attention_table.cpp.

#include "tools/faults/attention.hpp"

#include <algorithm>
#include <memory>

namespace faults {
namespace {

#ifdef FAULTY_LACKS_PREFILL
constexpr std::uint32_t kLacking = ASSAY_PREFILL | ASSAY_MIXED;
#else
constexpr std::uint32_t kLacking = 0;
#endif
constexpr char kReason[] = "no prefill kernel in this build";

AttentionInstance& instance(void* self) {
    return *static_cast<AttentionInstance*>(self);
}

assay_status check(const assay_attn_config* config, const assay_attn_layer* layer, int32_t phase,
                   assay_error* why) {
    return sdk::guard(why, [&] {
        const Options options = read_options(*config);
        (void)find_attention_fault(options.fault);
        if ((kLacking & static_cast<std::uint32_t>(phase)) != 0)
            return sdk::fail(why, ASSAY_UNSUPPORTED, "%s", kReason);
        const assay_attn_config ours = without_ours(*config, options);
        return healthy().attention->check(&ours, layer, phase, why);
    });
}

assay_status kv_layout(const assay_attn_config* config, const assay_attn_layer* layer,
                       assay_kv_layout* out, assay_error* err) {
    return sdk::guard(err, [&] {
        const Options options = read_options(*config);
        const assay_attn_config ours = without_ours(*config, options);
        return healthy().attention->kv_layout(&ours, layer, out, err);
    });
}

std::vector<const assay_attn_layer*> pointers(const std::vector<assay_attn_layer>& layers) {
    std::vector<const assay_attn_layer*> out;
    for (const assay_attn_layer& layer : layers) out.push_back(&layer);
    return out;
}

assay_status create(const assay_host* host, const assay_attn_config* config,
                    const assay_attn_layer* const* layers, uint32_t num_layers, void** self,
                    char tier[32], assay_error* err) {
    return sdk::guard(err, [&] {
        auto in = std::make_unique<AttentionInstance>(read_options(*config));
        in->fault = find_attention_fault(in->options.fault);
        if (config->io_dtype != ASSAY_F32 || config->device == nullptr ||
            std::string_view{config->device->kind} != "cpu")
            throw sdk::Error{
                ASSAY_UNSUPPORTED,
                "device: the faults read and write f32 in memory of the host, want \"cpu\""};
        for (std::uint32_t i = 0; i < num_layers; ++i) in->layers.push_back(*layers[i]);
        const assay_attn_config ours = without_ours(*config, in->options);
        assay_kv_layout layout{};
        layout.size = sizeof layout;
        if (num_layers > 0) {
            const assay_status status = in->kv_layout(&ours, layers[0], &layout, err);
            if (status != ASSAY_OK) return status;
        }
        in->page_tokens = static_cast<std::int32_t>(layout.page_tokens);
        if (in->fault != nullptr && in->fault->alter != nullptr) {
            std::vector<assay_attn_layer> altered = in->layers;
            for (assay_attn_layer& layer : altered) in->fault->alter(layer);
            const assay_status status = in->create(host, &ours, pointers(altered).data(),
                                                   num_layers, &in->wrong, tier, err);
            if (status != ASSAY_OK) return status;
        }
        const assay_status status =
            in->create(host, &ours, layers, num_layers, &in->self, tier, err);
        in->options.rest.clear();
        if (status == ASSAY_OK) *self = in.release();
        return status;
    });
}

void destroy(void* self) {
    AttentionInstance& in = instance(self);
    if (in.wrong != nullptr) in.destroy(in.wrong);
    in.destroy(in.self);
    delete &in;
}

assay_status sizes(void* self, int32_t max_seqs, int32_t max_tokens, int32_t max_kv_len,
                   uint64_t* plan_bytes, uint64_t* workspace_bytes, assay_error* err) {
    AttentionInstance& in = instance(self);
    const assay_status status =
        in.sizes(in.self, max_seqs, max_tokens, max_kv_len, plan_bytes, workspace_bytes, err);
    if (status != ASSAY_OK || in.wrong == nullptr) return status;
    std::uint64_t plan = 0, workspace = 0;
    const assay_status other =
        in.sizes(in.wrong, max_seqs, max_tokens, max_kv_len, &plan, &workspace, err);
    *plan_bytes = std::max(*plan_bytes, plan);
    *workspace_bytes = std::max(*workspace_bytes, workspace);
    return other;
}

bool is_faulty(const AttentionInstance& in) {
    return in.fault != nullptr && in.trigger.is_on();
}

assay_status append(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                    assay_error* err) {
    return sdk::guard(err, [&] {
        AttentionInstance& in = instance(self);
        if (layer == 0) in.trigger.begin_step();
        RunCall call{in, layer, *a, s, err};
        if (!is_faulty(in) || in.fault->append == nullptr) return call.store();
        return in.fault->append(call);
    });
}

assay_status run(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                 assay_error* err) {
    return sdk::guard(err, [&] {
        AttentionInstance& in = instance(self);
        RunCall call{in, layer, *a, s, err};
        if (layer == 0) in.decode_steps = a->phase == ASSAY_DECODE ? in.decode_steps + 1 : 0;
        if (!is_faulty(in)) return call.healthy();
        ++in.num_runs;
        assay_status status = ASSAY_OK;
        if (in.fault->run != nullptr)
            status = in.fault->run(call);
        else
            status = in.wrong != nullptr ? call.wrong() : call.healthy();
        in.last_phase = a->phase;
        return status;
    });
}

assay_status index(void* self, uint32_t layer, const assay_attn_index_args* a,
                   const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        AttentionInstance& in = instance(self);
        IndexCall call{in, layer, *a, s, err};
        if (!is_faulty(in) || in.fault->index == nullptr) return call.healthy();
        return in.fault->index(call);
    });
}

std::vector<assay_attn_cap> own_caps;
std::vector<const assay_attn_cap*> own_cap_pointers;

}  // namespace

BatchCopy::BatchCopy(const assay_attn_batch& b)
    : cu_q(b.cu_q, b.cu_q + b.num_seqs + 1),
      kv_len(b.kv_len, b.kv_len + b.num_seqs),
      block_table(b.block_table, b.block_table + std::int64_t{b.num_seqs} * b.max_blocks),
      slot_map(b.slot_map, b.slot_map + b.cu_q[b.num_seqs]),
      batch{b} {}

const assay_attn_batch* BatchCopy::get() {
    batch.cu_q = batch.host_cu_q = cu_q.data();
    batch.kv_len = batch.host_kv_len = kv_len.data();
    batch.block_table = block_table.data();
    batch.slot_map = slot_map.data();
    return &batch;
}

void make_attention_table(assay_attention& table) {
    table = *healthy().attention;
    own_caps.clear();
    own_cap_pointers.clear();
    for (std::uint32_t i = 0; i < table.num_caps; ++i) {
        assay_attn_cap cap = *table.caps[i];
        if (kLacking != 0) {
            cap.phases &= ~kLacking;
            cap.phases_absent |= kLacking;
            cap.absent_reason = kReason;
        }
        own_caps.push_back(cap);
    }
    for (const assay_attn_cap& cap : own_caps) own_cap_pointers.push_back(&cap);
    table.caps = own_cap_pointers.data();
    table.check = check;
    table.kv_layout = kv_layout;
    table.create = create;
    table.destroy = destroy;
    table.sizes = sizes;
    if (table.prepare != nullptr)
        table.prepare = Forward<AttentionInstance, &assay_attention::prepare>::call;
    table.append = append;
    if (table.index != nullptr) table.index = index;
    table.run = run;
    table.kv_read = Forward<AttentionInstance, &assay_attention::kv_read>::call;
    if (table.convert_pages != nullptr)
        table.convert_pages = Forward<AttentionInstance, &assay_attention::convert_pages>::call;
}

}  // namespace faults
