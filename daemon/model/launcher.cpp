#include "daemon/model/launcher.hpp"

#include "cxx/plugin.hpp"

namespace model {
namespace {

/// One more product of the call.
void add_product(assay_matmul& args, const Launcher::Product& p, std::int32_t op) {
    const std::int32_t i = args.num_weights++;
    args.w[i] = &p.weight->abi;
    args.y[i] = p.y;
    args.bias[i] = {};
    if (p.bias != nullptr && *p.bias)
        args.bias[i] = op == ASSAY_Q_GROUPED ? p.bias->vector_per_expert() : p.bias->vector();
    args.flags = p.weight->precision;
}

void add_gated(assay_matmul& args, const Launcher::Gated& gated, std::int32_t op, const assay_tensor& y) {
    add_product(args, gated.gate, op);
    add_product(args, gated.up, op);
    args.y[0] = y;
    args.glu = gated.kind;
    args.glu_alpha = gated.alpha;
    args.glu_limit = gated.limit;
}

}  // namespace

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

assay_matmul Launcher::arguments(const assay_tensor& x, const Groups& groups) const {
    assay_matmul a = arguments(x);
    a.row_ids = groups.row_ids;
    a.expert_offset = groups.offset;
    a.num_slots = groups.num_slots;
    a.max_rows_per_expert = groups.max_rows_per_expert;
    return a;
}

void Launcher::run_matmul(const char* op, std::int32_t kind, assay_matmul& args,
                          const plugin::Quant& quant) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    if (interceptor_ != nullptr) {
        const assay_status status = interceptor_->matmul({op, layer_}, kind, args, quant, &err);
        return check(op, quant.id(), status, plugin::words(err));
    }
    const assay_quant& api = quant.api();
    const auto call = kind == ASSAY_Q_GROUPED   ? api.grouped_matmul
                      : kind == ASSAY_Q_BATCHED ? api.batched_matmul
                                                : api.matmul;
    const assay_status status = call(quant.self(), &args, stream_, &err);
    check(op, quant.id(), status, plugin::words(err));
}

void Launcher::matmul(const char* op, const assay_tensor& x, std::initializer_list<Product> products,
                      std::uint32_t flags, bool joint) {
    assay_matmul args = arguments(x);
    for (const Product& p : products) {
        add_product(args, p, ASSAY_Q_MATMUL);
        args.flags |= flags;
        if (joint && args.num_weights < static_cast<std::int32_t>(products.size())) continue;
        run_matmul(op, ASSAY_Q_MATMUL, args, *p.weight->quant);
        args.num_weights = 0;
    }
}

void Launcher::glu(const Gated& gated, const assay_tensor& y) {
    op("glu", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.glu(self, gated.kind, gated.alpha, gated.limit, &gated.gate.y, &gated.up.y, &y, s);
    });
}

void Launcher::matmul_glu(const char* op_name, const assay_tensor& x, const Gated& gated,
                          const assay_tensor& y) {
    if (!gated.fused) {
        matmul(op_name, x, {gated.gate, gated.up});
        glu(gated, y);
        return;
    }
    assay_matmul args = arguments(x);
    add_gated(args, gated, ASSAY_Q_MATMUL, y);
    run_matmul(op_name, ASSAY_Q_MATMUL, args, *gated.gate.weight->quant);
}

void Launcher::batched(const char* op, const assay_tensor& x, const Weight& w, const assay_tensor& y) {
    assay_matmul args = arguments(x);
    args.num_weights = 1;
    args.flags = w.precision;
    args.w[0] = &w.abi;
    args.y[0] = y;
    run_matmul(op, ASSAY_Q_BATCHED, args, *w.quant);
}

void Launcher::grouped(const char* op, const Groups& groups, const assay_tensor& x,
                       const Product& product) {
    assay_matmul args = arguments(x, groups);
    add_product(args, product, ASSAY_Q_GROUPED);
    run_matmul(op, ASSAY_Q_GROUPED, args, *product.weight->quant);
}

void Launcher::grouped_glu(const char* op_name, const Groups& groups, const assay_tensor& x,
                           const Gated& gated, const assay_tensor& y) {
    if (!gated.fused) {
        grouped(op_name, groups, x, gated.gate);
        grouped(op_name, groups, x, gated.up);
        glu(gated, y);
        return;
    }
    assay_matmul args = arguments(x, groups);
    add_gated(args, gated, ASSAY_Q_GROUPED, y);
    run_matmul(op_name, ASSAY_Q_GROUPED, args, *gated.gate.weight->quant);
}

void Launcher::rows(const char* op, const Weight& w, const std::int32_t* ids, const assay_tensor& out) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    const assay_status status =
        interceptor_ != nullptr
            ? interceptor_->rows({op, layer_}, w, ids, out, &err)
            : w.quant->api().rows(w.quant->self(), &w.abi, ids, out.shape[0], &out, stream_, &err);
    check(op, w.quant->id(), status, plugin::words(err));
}

void Launcher::prepare(const plugin::Attention& plugin, const assay_attn_batch& batch, std::int32_t phase,
                       void* plan) {
    if (failed_ || plugin.api().prepare == nullptr) return;
    assay_error err = sdk::make_error();
    const assay_status status = plugin.api().prepare(plugin.self(), &batch, phase, plan, stream_, &err);
    check("attention.prepare", plugin.id(), status, plugin::words(err));
}

void Launcher::append(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    const assay_status status = interceptor_ != nullptr
                                    ? interceptor_->append({"attention.append", layer_}, plugin, layer, args, &err)
                                    : plugin.api().append(plugin.self(), layer, &args, stream_, &err);
    check("attention.append", plugin.id(), status, plugin::words(err));
}

void Launcher::index(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_index_args& args) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    const assay_status status = interceptor_ != nullptr
                                    ? interceptor_->index({"attention.index", layer_}, plugin, layer, args, &err)
                                    : plugin.api().index(plugin.self(), layer, &args, stream_, &err);
    check("attention.index", plugin.id(), status, plugin::words(err));
}

void Launcher::attend(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args) {
    if (failed_) return;
    assay_error err = sdk::make_error();
    const assay_status status = interceptor_ != nullptr
                                    ? interceptor_->attend({"attention.run", layer_}, plugin, layer, args, &err)
                                    : plugin.api().run(plugin.self(), layer, &args, stream_, &err);
    check("attention.run", plugin.id(), status, plugin::words(err));
}

void Launcher::copy_bytes(const char* name, void* dst, const void* src, std::uint64_t bytes) {
    if (failed_ || bytes == 0) return;
    check(name, device_.id(), device_.api().copy(device_.self(), dst, src, bytes, stream_), nullptr);
}

}  // namespace model
