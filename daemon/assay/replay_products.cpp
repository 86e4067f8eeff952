// Kernel level: every kind of product that the program makes, on the model's own weights, with fresh
// random inputs and any number of rows.

#include <algorithm>
#include <numeric>
#include <set>

#include "daemon/assay/context.hpp"
#include "daemon/assay/guarded.hpp"
#include "daemon/base/error.hpp"

namespace assay {
namespace {

/// A product as the program issued it. Its pointers to weights and biases stay good; its rows do not.
struct Product {
    std::string op;
    std::int64_t layer;
    std::int32_t kind;
    assay_matmul args;
    const plugin::Quant* quant;
};

struct RowLookup {
    std::string op;
    std::int64_t layer;
    const model::Weight* weight;
};

/// Passes every call on and keeps the first of each kind of product: op, formats, shapes, flags.
class Recorder : public model::Interceptor {
public:
    explicit Recorder(const Context& context) : context_{context}, device_{context.candidate.device}, stream_{context.candidate.stream} {}

    std::vector<Product> products;
    std::vector<RowLookup> lookups;

    assay_status matmul(const Site& site, std::int32_t kind, const assay_matmul& a, const plugin::Quant& quant, assay_error* err) override {
        announce(site, quant.id());
        std::string key = quant.id() + ' ' + std::to_string(kind) + ' ' + std::to_string(a.glu) + ' ' + std::to_string(a.flags) + ' ' +
                          std::to_string(a.row_ids != nullptr);
        for (std::int32_t i = 0; i < a.num_weights; ++i)
            key += ' ' + std::string{a.w[i]->format} + ' ' + a.w[i]->layout + ' ' + std::to_string(a.w[i]->experts) + ' ' +
                   std::to_string(a.w[i]->rows) + ' ' + std::to_string(a.w[i]->cols) + ' ' + std::to_string(a.bias[i].data != nullptr);
        if (keys_.insert(key).second) products.push_back({site.op, site.layer, kind, a, &quant});
        const assay_quant& api = quant.api();
        const auto call = kind == ASSAY_Q_GROUPED ? api.grouped_matmul : kind == ASSAY_Q_BATCHED ? api.batched_matmul : api.matmul;
        return call(quant.self(), &a, stream_.get(), err);
    }
    assay_status rows(const Site& site, const model::Weight& w, const std::int32_t* ids, const assay_tensor& out, assay_error* err) override {
        announce(site, w.quant->id());
        lookups.push_back({site.op, site.layer, &w});
        return w.quant->api().rows(w.quant->self(), &w.abi, ids, out.shape[0], &out, stream_.get(), err);
    }
    assay_status append(const Site& site, const plugin::Attention& p, std::uint32_t layer, const assay_attn_args& a, assay_error* err) override {
        announce(site, p.id());
        return p.api().append(p.self(), layer, &a, stream_.get(), err);
    }
    assay_status index(const Site& site, const plugin::Attention& p, std::uint32_t layer, const assay_attn_index_args& a, assay_error* err) override {
        announce(site, p.id());
        return p.api().index(p.self(), layer, &a, stream_.get(), err);
    }
    assay_status attend(const Site& site, const plugin::Attention& p, std::uint32_t layer, const assay_attn_args& a, assay_error* err) override {
        announce(site, p.id());
        return p.api().run(p.self(), layer, &a, stream_.get(), err);
    }
    const assay_ops& ops(const Site& site, void** self) override {
        announce(site, device_.id());
        *self = device_.self();
        return device_.ops();
    }

private:
    void announce(const Site& site, const std::string& plugin) const {
        context_.begin((site.layer >= 0 ? "layer " + std::to_string(site.layer) + ", " : std::string{}) + site.op + ", plugin " + plugin);
    }

    const Context& context_;
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::set<std::string> keys_;
};

std::string op_word(std::int32_t kind) {
    return kind == ASSAY_Q_GROUPED ? "grouped" : kind == ASSAY_Q_BATCHED ? "batched" : "matmul";
}

/// One product with `m` tokens: inputs, outputs and scratch between guards.
class Replay {
public:
    Replay(Context& context, const Product& product, std::int64_t m, const std::vector<float>& x)
        : c_{context}, product_{product}, args_{product.args}, m_{m} {
        const assay_weight& w = *args_.w[0];
        const bool is_batched = product.kind == ASSAY_Q_BATCHED;
        const std::int64_t heads = is_batched ? w.experts : 1;
        slots_ = m;
        if (product.kind == ASSAY_Q_GROUPED) make_groups();
        const std::int64_t x_rows = product.kind == ASSAY_Q_GROUPED && args_.row_ids == nullptr ? slots_ : m_;
        x_.emplace(c_.candidate.device, c_.candidate.stream, x_rows * heads * w.cols);
        x_->set(std::span{x}.first(static_cast<std::size_t>(x_rows * heads * w.cols)));
        args_.x = is_batched ? sdk::make_tensor(x_->data(), ASSAY_F32, m_, heads, w.cols) : sdk::make_tensor(x_->data(), ASSAY_F32, x_rows, w.cols);
        const std::int32_t outputs = args_.glu != 0 ? 1 : args_.num_weights;
        for (std::int32_t i = 0; i < outputs; ++i) {
            const std::int64_t n = args_.w[i]->rows;
            y_.emplace_back(c_.candidate.device, c_.candidate.stream, slots_ * heads * n);
            args_.y[i] = is_batched ? sdk::make_tensor(y_.back().data(), ASSAY_F32, m_, heads, n)
                                    : sdk::make_tensor(y_.back().data(), ASSAY_F32, slots_, n);
        }
        const assay_quant& api = product.quant->api();
        const std::int64_t max_m = product.kind == ASSAY_Q_GROUPED ? slots_ : m_;
        const std::uint64_t bytes =
            api.workspace_bytes == nullptr ? 0 : api.workspace_bytes(product.quant->self(), product.kind, args_.w, args_.num_weights, max_m);
        workspace_.emplace(c_.candidate.device, c_.candidate.stream, static_cast<std::int64_t>((bytes + 3) / 4));
        args_.workspace = workspace_->data();
        args_.workspace_bytes = bytes;
    }

    /// The call under the checker's eyes, and once more on its own.
    assay_status run(OpChecker& checker, const std::string& op, std::string& defect, assay_error* err) {
        prepare();
        if (const assay_status s = checker.matmul({op.c_str(), product_.layer}, product_.kind, args_, *product_.quant, err); s != ASSAY_OK) return s;
        for (const Guarded& y : y_)
            if (defect.empty()) defect = y.damage();
        if (defect.empty() && !workspace_->damage().empty()) defect = "the workspace: " + workspace_->damage();
        std::vector<std::vector<float>> first;
        for (const Guarded& y : y_) first.push_back(y.whole());
        prepare();
        const assay_quant& api = product_.quant->api();
        const auto call = product_.kind == ASSAY_Q_GROUPED   ? api.grouped_matmul
                          : product_.kind == ASSAY_Q_BATCHED ? api.batched_matmul
                                                             : api.matmul;
        if (const assay_status s = call(product_.quant->self(), &args_, c_.candidate.stream.get(), err); s != ASSAY_OK) return s;
        for (std::size_t i = 0; i < y_.size(); ++i)
            if (defect.empty() && !same_bits(first[i], y_[i].whole())) defect = "two runs of one call gave different bits";
        return ASSAY_OK;
    }

    /// Rows of the first output.
    [[nodiscard]] std::vector<float> output() const { return y_.front().elements(); }

private:
    void prepare() {
        for (Guarded& y : y_) {
            y.poison();
            if ((args_.flags & ASSAY_MM_ACCUMULATE) == 0) continue;
            std::vector<float> residual(y.elements().size());
            for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = static_cast<float>(static_cast<int>(i * 7919 % 251) - 125) / 64.0F;
            y.set(residual);
        }
    }

    /// Each token chooses as many experts as the model does; the choices go round, so that every expert has
    /// some as soon as there are enough, and in small batches many have none.
    void make_groups() {
        const std::int64_t experts = args_.w[0]->experts, top_k = c_.candidate.hparams().num_experts_per_tok;
        slots_ = m_ * top_k;
        std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), c_.rng);
        std::vector<std::vector<std::int32_t>> rows(static_cast<std::size_t>(experts));
        for (std::int64_t p = 0; p < slots_; ++p)
            rows[static_cast<std::size_t>(order[static_cast<std::size_t>(p % experts)])].push_back(static_cast<std::int32_t>(p / top_k));
        std::vector<std::int32_t> offset{0}, ids;
        for (const auto& r : rows) {
            ids.insert(ids.end(), r.begin(), r.end());
            offset.push_back(static_cast<std::int32_t>(ids.size()));
        }
        offset_.emplace(c_.candidate.device, c_.candidate.stream, static_cast<std::int64_t>(offset.size()));
        offset_->set(std::span<const std::int32_t>{offset});
        args_.expert_offset = offset_->ints();
        if (args_.row_ids != nullptr) {
            ids_.emplace(c_.candidate.device, c_.candidate.stream, static_cast<std::int64_t>(ids.size()));
            ids_->set(std::span<const std::int32_t>{ids});
            args_.row_ids = ids_->ints();
        }
        args_.num_slots = static_cast<std::int32_t>(slots_);
        args_.max_rows_per_expert = static_cast<std::int32_t>(m_);
    }

    Context& c_;
    const Product& product_;
    assay_matmul args_;
    std::int64_t m_, slots_ = 0;
    std::optional<Guarded> x_, workspace_, offset_, ids_;
    std::vector<Guarded> y_;
};

std::string formats_of(const assay_matmul& a) {
    std::string text;
    for (std::int32_t i = 0; i < a.num_weights; ++i)
        if (text.find(a.w[i]->format) == std::string::npos) text += (text.empty() ? "" : "+") + std::string{a.w[i]->format};
    return text;
}

void replay(Context& c, const Product& product, Gathering& gathering) {
    const assay_weight& w = *product.args.w[0];
    const std::string id = "kernels." + op_word(product.kind) + "." + formats_of(product.args) + (product.args.glu != 0 ? ".gated" : "");
    Subject subject{product.quant->id(), {}, product.op, product.layer};
    if (const auto place = c.weights.find(&w)) subject.tensor = c.definition.weight(*place).tensor->name;
    c.begin("kernels: " + product.op + ", " + formats_of(product.args));

    std::string where;
    OpChecker checker = c.checker([&](const Finding& finding) { gathering.add(id, finding, where); });
    const std::int64_t heads = product.kind == ASSAY_Q_BATCHED ? w.experts : 1;
    const std::int64_t top_k = product.kind == ASSAY_Q_GROUPED ? c.candidate.hparams().num_experts_per_tok : 1;
    const std::int64_t max_m = *std::max_element(c.options.depth.row_counts.begin(), c.options.depth.row_counts.end());
    std::normal_distribution<float> normal{0.0F, 1.0F};
    std::vector<float> x(static_cast<std::size_t>(max_m * heads * top_k * w.cols));
    for (float& value : x) value = normal(c.rng);
    // Where activations are limited, some rows are loud enough to reach the limit.
    constexpr float kLoudness[] = {1.0F, 8.0F, 64.0F};
    if (product.args.glu == ASSAY_GLU_SILU_CLAMP)
        for (std::size_t i = 0; i < x.size(); ++i) x[i] *= kLoudness[i / static_cast<std::size_t>(w.cols) % 3];

    const bool is_invariant = (product.quant->api().flags & ASSAY_QUANT_ROW_INVARIANT) != 0 && product.kind != ASSAY_Q_GROUPED;
    std::vector<float> smaller;
    for (const std::int64_t m : c.options.depth.row_counts) {
        if (c.cancelled()) return;
        if (m > c.candidate.runner.limits().max_tokens) continue;
        where = std::to_string(m) + (m == 1 ? " row" : " rows");
        Sampling sampling;
        sampling.max_cols = std::clamp<std::int64_t>(c.options.depth.max_cols_elements / w.cols, 48, 8192);
        if (product.kind == ASSAY_Q_GROUPED) {
            sampling.max_rows = std::min<std::int64_t>(2 * w.experts, 256);
            sampling.max_cols = std::max<std::int64_t>(24, sampling.max_cols / 4);
        }
        checker.set_sampling(std::move(sampling));
        try {
            Replay one{c, product, m, x};
            std::string defect;
            assay_error err = sdk::make_error();
            if (const assay_status status = one.run(checker, product.op, defect, &err); status != ASSAY_OK)
                return gathering.fail(id, subject, where + ": status " + std::to_string(status) + ": " + err.text);
            if (!defect.empty()) return gathering.fail(id, subject, where + ": " + defect);
            if (!is_invariant) continue;
            std::vector<float> rows = one.output();
            if (!same_bits(std::span{rows}.first(std::min(rows.size(), smaller.size())), smaller))
                return gathering.fail(id, subject, where + ": the plugin declares that a row does not depend on the others of its call, and it does");
            smaller = std::move(rows);
        } catch (const base::StartError& e) {
            return gathering.fail(id, subject, where + ": " + e.what());
        }
    }
}

/// Every element of the norms and biases, which loading widened through the plugins.
void compare_vectors(Context& c, Gathering& gathering) {
    c.begin("kernels: norms and biases");
    const auto compare = [&](Place place, const model::Weight& w) {
        if (!w || w.quant != nullptr) return;  // matrices have a plugin
        Finding finding;
        finding.op = "widening";
        finding.plugin = c.candidate.device.id();
        finding.tensor = w.tensor != nullptr ? w.tensor->name : "";
        finding.layer = place.layer;
        const HostTensor got{w.vector(), c.candidate.device, c.candidate.stream};
        const std::vector<float> want = c.definition.vector(place);
        for (std::size_t i = 0; i < want.size(); ++i)
            finding.tally.add(got.at(static_cast<std::int64_t>(i)), {double{want[i]}, kUnit * std::abs(double{want[i]})}, 0, static_cast<std::int64_t>(i));
        gathering.add("kernels.vectors", finding);
    };
    for (std::size_t r = 0; r < model::kNumRoles; ++r) {
        const auto role = static_cast<model::Role>(r);
        compare({-1, role}, c.candidate.weights.whole(role));
        for (std::int64_t l = 0; l < c.candidate.hparams().num_layers; ++l) compare({l, role}, c.candidate.weights.layer(l, role));
    }
}

void look_up(Context& c, const RowLookup& lookup, Gathering& gathering) {
    const model::Weight& w = *lookup.weight;
    const std::string id = "kernels.rows." + std::string{w.abi.format};
    c.begin("kernels: " + lookup.op + ", " + w.abi.format);
    OpChecker checker = c.checker([&](const Finding& finding) { gathering.add(id, finding); });
    std::vector<std::int32_t> ids{0, static_cast<std::int32_t>(w.abi.rows - 1)};
    std::uniform_int_distribution<std::int32_t> any{0, static_cast<std::int32_t>(w.abi.rows - 1)};
    for (int i = 0; i < 62; ++i) ids.push_back(any(c.rng));
    Guarded device_ids{c.candidate.device, c.candidate.stream, static_cast<std::int64_t>(ids.size())};
    device_ids.set(std::span<const std::int32_t>{ids});
    Guarded out{c.candidate.device, c.candidate.stream, static_cast<std::int64_t>(ids.size()) * w.abi.cols};
    const Subject subject{w.quant->id(), w.tensor->name, lookup.op, lookup.layer};
    assay_error err = sdk::make_error();
    const assay_status status = checker.rows({lookup.op.c_str(), lookup.layer}, w, device_ids.ints(),
                                             sdk::make_tensor(out.data(), ASSAY_F32, ids.size(), w.abi.cols), &err);
    if (status != ASSAY_OK) return gathering.fail(id, subject, "status " + std::to_string(status) + ": " + err.text);
    if (const std::string damage = out.damage(); !damage.empty()) gathering.fail(id, subject, damage);
}

}  // namespace

void run_products(Context& c) {
    Gathering gathering{Level::kernels};
    Recorder recorder{c};
    c.begin("kernels: recording one step");
    try {
        model::StepDriver driver{c.candidate.runner, c.candidate.cache, c.candidate.device, c.candidate.stream, 1, 2};
        c.candidate.runner.set_interceptor(&recorder);
        const std::vector<std::vector<std::int32_t>> tokens{probe_tokens(c.candidate, 1)};
        driver.step(tokens, true);
    } catch (const base::StartError& e) {
        gathering.fail("kernels.step", {}, e.what());
    }
    c.candidate.runner.set_interceptor(nullptr);
    compare_vectors(c, gathering);
    for (const RowLookup& lookup : recorder.lookups) look_up(c, lookup, gathering);
    for (const Product& product : recorder.products) replay(c, product, gathering);
    gathering.finish(c);
}

}  // namespace assay
