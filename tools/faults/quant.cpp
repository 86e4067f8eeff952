// The forwarding side of quant/1; what is wrong is in quant_table.cpp.

#include "tools/faults/quant.hpp"

#include <cstring>
#include <memory>

namespace faults {
namespace {

QuantInstance& instance(void* self) {
    return *static_cast<QuantInstance*>(self);
}

assay_status create(const assay_host* host, const assay_quant_config* config, void** self,
                    char tier[32], assay_error* err) {
    return sdk::guard(err, [&] {
        auto in = std::make_unique<QuantInstance>(read_options(*config));
        in->fault = find_quant_fault(in->options.fault);
        if (config->device == nullptr || std::string_view{config->device->kind} != "cpu")
            throw sdk::Error{ASSAY_UNSUPPORTED,
                             "device: the faults read and write memory of the host, want \"cpu\""};
        const assay_quant_config ours = without_ours(*config, in->options);
        const assay_status status = in->create(host, &ours, &in->self, tier, err);
        in->options.rest.clear();
        if (status == ASSAY_OK) *self = in.release();
        return status;
    });
}

void destroy(void* self) {
    QuantInstance& in = instance(self);
    in.destroy(in.self);
    delete &in;
}

int32_t supports(void* self, const assay_quant_query* query, assay_error* why) {
    QuantInstance& in = instance(self);
    if (in.fault != nullptr && in.fault->lacks != nullptr && in.fault->lacks(*query) &&
        (in.options.format.empty() || in.options.format == query->format)) {
        sdk::fail(why, ASSAY_UNSUPPORTED, "format \"%s\": no kernel in this build", query->format);
        return ASSAY_NONE;
    }
    return in.supports(in.self, query, why);
}

/// `w` over changed bytes, where the fault changes this weight.
assay_weight altered(QuantInstance& in, const assay_weight& w, std::int32_t op) {
    assay_weight out = w;
    if (std::strcmp(w.layout, ASSAY_LAYOUT_STORED) != 0 || !in.selects(w)) return out;
    const std::scoped_lock lock{in.mutex};
    auto [it, is_new] = in.altered.try_emplace({w.data, op});
    std::vector<std::uint8_t>& bytes = it->second;
    if (is_new) {
        const auto* stored = static_cast<const std::uint8_t*>(w.data);
        bytes.assign(stored, stored + w.data_bytes);
        if (!in.fault->alter(w, op, bytes.data())) bytes.clear();
    }
    if (!bytes.empty()) out.data = bytes.data();
    return out;
}

bool is_faulty(const QuantInstance& in) {
    return in.fault != nullptr && in.trigger.is_on();
}

assay_status rows(void* self, const assay_weight* w, const int32_t* row_ids, int64_t num_ids,
                  const assay_tensor* out, const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        QuantInstance& in = instance(self);
        in.trigger.begin_step();  // a step begins with the embedding
        if (!is_faulty(in)) return in.rows(in.self, w, row_ids, num_ids, out, s, err);
        const assay_weight weight = in.fault->alter != nullptr ? altered(in, *w, ASSAY_Q_ROWS) : *w;
        std::vector<std::int32_t> ids(row_ids, row_ids + num_ids);
        if (in.fault->ids != nullptr && in.selects(*w)) in.fault->ids(ids, w->experts * w->rows);
        return in.rows(in.self, &weight, ids.data(), num_ids, out, s, err);
    });
}

template <std::int32_t kOp>
assay_status product(void* self, const assay_matmul* a, const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        QuantInstance& in = instance(self);
        QuantCall call{in, kOp, *a, s, err};
        if (!is_faulty(in)) return call.healthy();
        ++in.num_calls;
        assay_weight weights[ASSAY_MAX_FUSED];
        for (std::int32_t i = 0; in.fault->alter != nullptr && i < a->num_weights; ++i) {
            weights[i] = altered(in, *a->w[i], kOp);
            call.args.w[i] = &weights[i];
        }
        if (in.fault->product == nullptr || !in.selects(*a->w[0])) return call.healthy();
        return in.fault->product(call);
    });
}

}  // namespace

assay_status QuantCall::healthy() const {
    const auto run = op == ASSAY_Q_GROUPED   ? in.grouped_matmul
                     : op == ASSAY_Q_BATCHED ? in.batched_matmul
                                             : in.matmul;
    return run(in.self, &args, stream, err);
}

void make_quant_table(assay_quant& table) {
    table = *healthy().quant;
    table.create = create;
    table.destroy = destroy;
    table.supports = supports;
    if (table.packed_layout != nullptr)
        table.packed_layout = Forward<QuantInstance, &assay_quant::packed_layout>::call;
    if (table.repack != nullptr) table.repack = Forward<QuantInstance, &assay_quant::repack>::call;
    table.workspace_bytes = Forward<QuantInstance, &assay_quant::workspace_bytes>::call;
    table.rows = rows;
    table.matmul = product<ASSAY_Q_MATMUL>;
    table.batched_matmul = product<ASSAY_Q_BATCHED>;
    table.grouped_matmul = product<ASSAY_Q_GROUPED>;
}

}  // namespace faults
