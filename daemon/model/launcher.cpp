#include "daemon/model/launcher.hpp"

#include "cxx/plugin.hpp"

namespace model {

void Launcher::check(const char* op, const std::string& plugin, assay_status status, const char* words) {
    if (status == ASSAY_OK) return;
    failed_ = true;
    failure_ = (layer_ >= 0 ? "layer " + std::to_string(layer_) + ", " : std::string{}) + op +
               ", plugin \"" + plugin + "\": status " + std::to_string(status) +
               (words != nullptr && words[0] != '\0' ? std::string{": "} + words : std::string{});
}

assay_matmul Launcher::arguments(const assay_tensor& x) const {
    assay_matmul a{};
    a.size = sizeof a;
    a.x = x;
    a.workspace = workspace_;
    a.workspace_bytes = workspace_bytes_;
    return a;
}

void Launcher::run_matmul(const char* op, std::int32_t kind, assay_matmul& args,
                          const plugin::Quant& quant) {
    if (failed_) return;
    const assay_quant& api = quant.api();
    assay_error err = sdk::make_error();
    const auto call = kind == ASSAY_Q_GROUPED   ? api.grouped_matmul
                      : kind == ASSAY_Q_BATCHED ? api.batched_matmul
                                                : api.matmul;
    check(op, quant.id(), call(quant.self(), &args, stream_, &err), err.text);
}

void Launcher::matmul(const char* op, const assay_tensor& x, std::initializer_list<Product> products,
                      std::uint32_t flags, bool joint) {
    assay_matmul args = arguments(x);
    for (const Product& p : products) {
        args.w[args.num_weights] = &p.weight->abi;
        args.y[args.num_weights] = p.y;
        args.bias[args.num_weights] = p.bias != nullptr && *p.bias ? p.bias->vector() : assay_tensor{};
        args.flags = flags | p.weight->precision;
        ++args.num_weights;
        if (joint && args.num_weights < static_cast<std::int32_t>(products.size())) continue;
        run_matmul(op, ASSAY_Q_MATMUL, args, *p.weight->quant);
        args.num_weights = 0;
    }
}

void Launcher::matmul_glu(const char* op_name, const Glu& glu, bool fused, const assay_tensor& x,
                          const Weight& gate, const Weight& up, const assay_tensor& y,
                          const assay_tensor& scratch_gate, const assay_tensor& scratch_up) {
    if (!fused) {
        matmul(op_name, x, {{&gate, scratch_gate}, {&up, scratch_up}});
        op("glu", [&](const assay_ops& ops, void* self, const assay_stream* s) {
            return ops.glu(self, glu.kind, glu.alpha, glu.limit, &scratch_gate, &scratch_up, &y, s);
        });
        return;
    }
    assay_matmul args = arguments(x);
    args.num_weights = 2;
    args.flags = gate.precision;
    args.w[0] = &gate.abi;
    args.w[1] = &up.abi;
    args.y[0] = y;
    args.glu = glu.kind;
    args.glu_alpha = glu.alpha;
    args.glu_limit = glu.limit;
    run_matmul(op_name, ASSAY_Q_MATMUL, args, *gate.quant);
}

void Launcher::batched(const char* op, const assay_tensor& x, const Weight& w, const assay_tensor& y) {
    assay_matmul args = arguments(x);
    args.num_weights = 1;
    args.flags = w.precision;
    args.w[0] = &w.abi;
    args.y[0] = y;
    run_matmul(op, ASSAY_Q_BATCHED, args, *w.quant);
}

void Launcher::grouped(const char* op, const Groups& groups, const assay_tensor& x, const Weight& w,
                       const assay_tensor& y) {
    assay_matmul args = arguments(x);
    args.num_weights = 1;
    args.flags = w.precision;
    args.w[0] = &w.abi;
    args.y[0] = y;
    args.row_ids = groups.row_ids;
    args.expert_offset = groups.offset;
    args.num_slots = groups.num_slots;
    args.max_rows_per_expert = groups.max_rows_per_expert;
    run_matmul(op, ASSAY_Q_GROUPED, args, *w.quant);
}

void Launcher::grouped_glu(const char* op_name, const Glu& glu, bool fused, const Groups& groups,
                           const assay_tensor& x, const Weight& gate, const Weight& up,
                           const assay_tensor& y, const assay_tensor& scratch_gate,
                           const assay_tensor& scratch_up) {
    if (!fused) {
        grouped(op_name, groups, x, gate, scratch_gate);
        grouped(op_name, groups, x, up, scratch_up);
        op("glu", [&](const assay_ops& ops, void* self, const assay_stream* s) {
            return ops.glu(self, glu.kind, glu.alpha, glu.limit, &scratch_gate, &scratch_up, &y, s);
        });
        return;
    }
    assay_matmul args = arguments(x);
    args.num_weights = 2;
    args.flags = gate.precision;
    args.w[0] = &gate.abi;
    args.w[1] = &up.abi;
    args.y[0] = y;
    args.glu = glu.kind;
    args.glu_alpha = glu.alpha;
    args.glu_limit = glu.limit;
    args.row_ids = groups.row_ids;
    args.expert_offset = groups.offset;
    args.num_slots = groups.num_slots;
    args.max_rows_per_expert = groups.max_rows_per_expert;
    run_matmul(op_name, ASSAY_Q_GROUPED, args, *gate.quant);
}

void Launcher::rows(const char* op, const Weight& w, const std::int32_t* ids, const assay_tensor& out) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    check(op, w.quant->id(),
          w.quant->api().rows(w.quant->self(), &w.abi, ids, out.shape[0], &out, stream_, &err), err.text);
}

void Launcher::copy_bytes(const char* name, void* dst, const void* src, std::uint64_t bytes) {
    if (failed_ || bytes == 0) return;
    check(name, device_.id(), device_.api().copy(device_.self(), dst, src, bytes, stream_), nullptr);
}

}  // namespace model
