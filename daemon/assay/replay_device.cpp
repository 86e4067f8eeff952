// Kernel level: device ops with inputs that a short run of the model would not bring about, and those
// that the model does not call itself: log-probabilities and the draw.

#include <algorithm>
#include <cmath>

#include "daemon/assay/context.hpp"
#include "daemon/assay/guarded.hpp"
#include "daemon/base/error.hpp"
#include "reference/sampling.hpp"

namespace assay {
namespace {

constexpr std::int64_t kRows = 17;

class DeviceReplay {
public:
    DeviceReplay(Context& c, Gathering& gathering)
        : c_{c},
          gathering_{gathering},
          checker_{c.checker([this](const Finding& f) { gathering_.add("kernels.device." + f.op, f); })} {}

    void run() {
        const model::Hparams& h = c_.candidate.hparams();
        norm(h);
        for (const model::RopeParams& rope : h.ropes) rotate(rope);
        if (h.num_experts > 0) route(h);
        draw(h);
        if (offers(ASSAY_OP_LOGITS_MASK) && offers(ASSAY_OP_LOGITS_EDIT)) edit(h);
        steps();
    }

private:
    /// Every op where the program calls it, in steps of several shapes: a prompt, decodes beside one, one
    /// decode alone.
    void steps() {
        OpChecker checker = c_.checker([this](const Finding& f) {
            if (f.plugin != c_.candidate.device.id() || !f.tensor.empty() || f.op.starts_with("attention.")) return;  // judged elsewhere
            std::string id = "kernels.device." + f.op;
            std::replace(id.begin(), id.end(), ' ', '_');
            gathering_.add(id, f);
        });
        checker.set_sampling({.max_rows = 1, .max_cols = 8, .max_heads = 1, .rows = {}});
        const model::RunnerLimits& limits = c_.candidate.runner.limits();
        const std::int32_t n = std::min({19, c_.max_len() - 2, limits.max_tokens - 2});
        const std::int32_t page = c_.candidate.cache.block_size(), blocks = (n + 2 + page - 1) / page;
        const std::int32_t seqs = std::min({limits.max_seqs, 3, c_.candidate.cache.num_blocks() / blocks});
        const auto tokens = probe_tokens(c_.candidate, n);
        std::vector<std::vector<std::vector<std::int32_t>>> plans;
        plans.emplace_back(1, tokens);
        const std::vector<std::int32_t> one{tokens.front()};
        if (seqs > 2) plans.push_back({one, one, tokens});
        plans.emplace_back(1, one);
        model::StepDriver driver{c_.candidate.runner, c_.candidate.cache, c_.candidate.device, c_.candidate.stream, seqs, n + 2};
        c_.candidate.runner.set_interceptor(&checker);
        try {
            for (auto& plan : plans) {
                plan.resize(static_cast<std::size_t>(seqs));
                driver.step(plan, false);
            }
        } catch (const base::StartError& e) {
            gathering_.fail("kernels.device.step", {}, e.what());
        }
        c_.candidate.runner.set_interceptor(nullptr);
    }


    std::vector<float> normal(std::int64_t count) {
        std::normal_distribution<float> distribution;
        std::vector<float> out(static_cast<std::size_t>(count));
        for (float& x : out) x = distribution(c_.rng);
        return out;
    }

    /// Runs `call(ops, self)` through the checker, and once more on its own.
    template <class Call>
    void check(const char* op, std::initializer_list<const Guarded*> outputs, Call&& call) {
        c_.begin(std::string{"kernels: device op "} + op);
        void* self = nullptr;
        const assay_ops& ops = checker_.ops({op, -1}, &self);
        fail_unless(op, call(ops, self));
        for (const Guarded* out : outputs)
            if (const std::string damage = out->damage(); !damage.empty()) gathering_.fail(std::string{"kernels.device."} + op, subject(op), damage);
        std::vector<std::vector<float>> first;
        for (const Guarded* out : outputs) first.push_back(out->whole());
        fail_unless(op, call(c_.candidate.device.ops(), c_.candidate.device.self()));
        auto before = first.begin();
        for (const Guarded* out : outputs)
            if (!same_bits(*before++, out->whole()))
                gathering_.fail(std::string{"kernels.device."} + op, subject(op), "two runs of one call gave different bits");
    }
    [[nodiscard]] bool offers(std::int32_t op) const {
        return c_.candidate.device.ops().supports(c_.candidate.device.self(), op, ASSAY_F32, nullptr) == ASSAY_OK;
    }
    [[nodiscard]] Subject subject(const char* op) const { return {c_.candidate.device.id(), {}, op, -1}; }
    void fail_unless(const char* op, assay_status status) {
        if (status != ASSAY_OK) gathering_.fail(std::string{"kernels.device."} + op, subject(op), "status " + std::to_string(status));
    }
    [[nodiscard]] Guarded guarded(std::int64_t count) const { return {c_.candidate.device, c_.candidate.stream, count}; }

    /// Rows from so small that the epsilon decides to so large that it is nothing.
    void norm(const model::Hparams& h) {
        std::vector<float> values = normal(kRows * h.hidden_size);
        for (std::int64_t r = 0; r < kRows; ++r)
            for (std::int64_t i = 0; i < h.hidden_size; ++i)
                values[static_cast<std::size_t>(r * h.hidden_size + i)] *= static_cast<float>(std::pow(10.0, static_cast<double>(r % 8) - 5));
        Guarded x = guarded(kRows * h.hidden_size), out = guarded(kRows * h.hidden_size);
        x.set(std::span<const float>{values});
        const assay_tensor in = sdk::make_tensor(x.data(), ASSAY_F32, kRows, h.hidden_size);
        const assay_tensor y = sdk::make_tensor(out.data(), ASSAY_F32, kRows, h.hidden_size);
        const assay_tensor weight = c_.candidate.weights.whole(model::Role::output_norm).vector();
        check("rmsnorm", {&out}, [&](const assay_ops& ops, void* self) {
            return ops.rmsnorm(self, &in, nullptr, &weight, static_cast<float>(h.rms_eps), &y, c_.candidate.stream.get());
        });
    }

    /// Angles at the first and last positions of the context, and both pairings of heads.
    void rotate(const model::RopeParams& rope) {
        const std::int64_t half = rope.n_rot / 2, heads = 3, dim = rope.n_rot + 2;
        std::vector<std::int32_t> positions;
        for (std::int64_t i = 0; i < kRows; ++i)
            positions.push_back(static_cast<std::int32_t>(i * (c_.candidate.context_length - 1) / (kRows - 1)));
        Guarded pos = guarded(kRows), freq = guarded(2 * half), table = guarded(kRows * 2 * half);
        Guarded x = guarded(kRows * heads * dim), out = guarded(kRows * heads * dim);
        pos.set(std::span<const std::int32_t>{positions});
        const std::vector<double> inverse = model::inverse_frequencies(rope, {});
        std::vector<float> halves(static_cast<std::size_t>(2 * half));
        std::memcpy(halves.data(), inverse.data(), inverse.size() * sizeof(double));
        freq.set(std::span<const float>{halves});
        const std::vector<float> values = normal(kRows * heads * dim);
        x.set(std::span<const float>{values});
        const assay_tensor cos_sin = sdk::make_tensor(table.data(), ASSAY_F32, kRows, 2, half);
        check("rope_table", {&table}, [&](const assay_ops& ops, void* self) {
            return ops.rope_table(self, pos.ints(), kRows, reinterpret_cast<const double*>(freq.data()), static_cast<std::int32_t>(half),
                                  static_cast<float>(rope.magnitude), &cos_sin, c_.candidate.stream.get());
        });
        const assay_tensor in = sdk::make_tensor(x.data(), ASSAY_F32, kRows, heads, dim);
        const assay_tensor y = sdk::make_tensor(out.data(), ASSAY_F32, kRows, heads, dim);
        check("rope", {&out}, [&](const assay_ops& ops, void* self) {
            return ops.rope(self, &in, &cos_sin, rope.style, &y, c_.candidate.stream.get());
        });
    }

    /// The model's own rule on logits that no probe would bring about, with its own bias where it has one.
    void route(const model::Hparams& h) {
        const std::int64_t E = h.num_experts, K = h.num_experts_per_tok;
        assay_router rule{};
        rule.size = sizeof rule;
        rule.gating = h.gating;
        rule.top_k = static_cast<std::int32_t>(K);
        rule.num_groups = static_cast<std::int32_t>(h.num_expert_groups);
        rule.top_groups = static_cast<std::int32_t>(h.num_expert_groups_used);
        rule.normalize = h.normalize_expert_weights;
        rule.scale = static_cast<float>(h.expert_weights_scale);
        const model::Weight* bias_weight = nullptr;
        for (std::int64_t l = 0; l < h.num_layers && bias_weight == nullptr; ++l)
            if (const auto& w = c_.candidate.weights.layer(l, model::Role::router_bias)) bias_weight = &w;
        Guarded logits = guarded(kRows * E), ids = guarded(kRows * K), weights = guarded(kRows * K);
        const std::vector<float> values = normal(kRows * E);
        logits.set(std::span<const float>{values});
        const assay_tensor in = sdk::make_tensor(logits.data(), ASSAY_F32, kRows, E), chosen = sdk::make_tensor(ids.data(), ASSAY_I32, kRows, K);
        const assay_tensor w = sdk::make_tensor(weights.data(), ASSAY_F32, kRows, K);
        const assay_tensor bias = bias_weight != nullptr ? bias_weight->vector() : assay_tensor{};
        check("router", {&ids, &weights}, [&](const assay_ops& ops, void* self) {
            return ops.router(self, &rule, &in, bias_weight != nullptr ? &bias : nullptr, &chosen, &w, c_.candidate.stream.get());
        });
    }

    /// The device's own log-probabilities and draws, which no tap of the model sees.
    void draw(const model::Hparams& h) {
        const std::int64_t V = h.vocab_size, rows = 6, top = 5;
        std::vector<float> values = normal(rows * V);
        for (float& x : values) x *= 3.0F;
        Guarded logits = guarded(rows * V), tokens = guarded(rows), of_token = guarded(rows), top_ids = guarded(rows * top);
        Guarded top_logprobs = guarded(rows * top), settings = guarded(rows * static_cast<std::int64_t>(sizeof(assay_sample_row) / 4));
        logits.set(std::span<const float>{values});
        std::vector<std::int32_t> asked;
        for (std::int64_t r = 0; r < rows; ++r) asked.push_back(static_cast<std::int32_t>((r * 7919 + 1) % V));
        tokens.set(std::span<const std::int32_t>{asked});
        const assay_tensor in = sdk::make_tensor(logits.data(), ASSAY_F32, rows, V);
        const plugin::Device& device = c_.candidate.device;
        const assay_stream* stream = c_.candidate.stream.get();
        c_.begin("kernels: device op logprobs");
        Finding scored{"logprobs", device.id(), {}, -1, {}, 0};
        fail_unless("logprobs", device.ops().logprobs(device.self(), &in, tokens.ints(), of_token.data(), static_cast<std::int32_t>(top), top_ids.ints(),
                                                      top_logprobs.data(), stream));
        const std::vector<float> got = of_token.elements(), got_top = top_logprobs.elements();
        for (std::int64_t r = 0; r < rows; ++r) {
            const float* row = values.data() + r * V;
            const auto order = sdk::reference::descending_ids(row, V);
            double sum = 0;
            for (std::int64_t i = 0; i < V; ++i) sum += std::exp(double{row[i]} - double{row[order.front()]});
            const auto logprob = [&](std::int32_t id) { return double{row[id]} - double{row[order.front()]} - std::log(sum); };
            const auto sigma = [&](double value) { return kUnit * (8 + std::sqrt(static_cast<double>(V)) / 8 + std::fabs(value)); };
            const double want = logprob(asked[static_cast<std::size_t>(r)]);
            scored.tally.add(got[static_cast<std::size_t>(r)], {want, sigma(want)}, r, 0);
            for (std::int64_t i = 0; i < top; ++i) {
                const double likely = logprob(order[static_cast<std::size_t>(i)]);
                scored.tally.add(got_top[static_cast<std::size_t>(r * top + i)], {likely, sigma(likely)}, r, 1 + i);
            }
        }
        for (const Guarded* out : {&of_token, &top_ids, &top_logprobs})
            if (const std::string damage = out->damage(); !damage.empty()) scored.tally.fail(damage);
        gathering_.add("kernels.device.logprobs", scored);

        c_.begin("kernels: device op sample");
        std::vector<assay_sample_row> how(static_cast<std::size_t>(rows), assay_sample_row{1.0F, 1.0F, 0.0F, 0, 0.0F});
        std::uniform_real_distribution<float> uniform;
        for (std::size_t r = 0; r < how.size(); ++r) {
            how[r].uniform = uniform(c_.rng);
            if (r < 2) how[r].temperature = 0;
            if (r == 3) how[r].top_k = 7;
            if (r == 4) how[r].top_p = 0.8F;
            if (r == 5) how[r].min_p = 0.1F;
        }
        std::vector<float> raw(how.size() * sizeof(assay_sample_row) / 4);
        std::memcpy(raw.data(), how.data(), raw.size() * 4);
        settings.set(std::span<const float>{raw});
        Guarded drawn = guarded(rows);
        Finding sampled{"sample", device.id(), {}, -1, {}, 0};
        fail_unless("sample", device.ops().sample(device.self(), &in, reinterpret_cast<const assay_sample_row*>(settings.data()), drawn.ints(), stream));
        const std::vector<float> ids = drawn.elements();
        for (std::int64_t r = 0; r < rows; ++r) {
            const float* row = values.data() + r * V;
            const auto id = std::bit_cast<std::int32_t>(ids[static_cast<std::size_t>(r)]);
            // A draw that falls between two candidates may take either: rounding moves the border.
            assay_sample_row near = how[static_cast<std::size_t>(r)];
            bool is_right = false;
            for (const float nudge : {0.0F, -1e-5F, 1e-5F}) {
                near.uniform = std::clamp(how[static_cast<std::size_t>(r)].uniform + nudge, 0.0F, 0.99999994F);
                is_right = is_right || sdk::reference::sample(row, V, near) == id;
            }
            if (!is_right)
                sampled.tally.fail("row " + std::to_string(r) + ": drew token " + std::to_string(id) + ", expected " +
                                   std::to_string(sdk::reference::sample(row, V, how[static_cast<std::size_t>(r)])));
            sampled.tally.add(0, {0, 0}, r, 0);
        }
        if (const std::string damage = drawn.damage(); !damage.empty()) sampled.tally.fail(damage);
        gathering_.add("kernels.device.sample", sampled);
    }

    /// Penalties, bias and grammar masks, on logits in place.
    void edit(const model::Hparams& h) {
        const std::int64_t V = h.vocab_size, rows = 4, words = (V + 31) / 32;
        const plugin::Device& device = c_.candidate.device;
        const assay_stream* stream = c_.candidate.stream.get();
        std::vector<float> values = normal(rows * V);
        Guarded logits = guarded(rows * V);
        const assay_tensor in = sdk::make_tensor(logits.data(), ASSAY_F32, rows, V);
        const auto judge = [&](const char* op, const std::vector<float>& want) {
            Finding f{op, device.id(), {}, -1, {}, 0};
            const std::vector<float> got = logits.elements();
            for (std::int64_t i = 0; i < rows * V; ++i) {
                const auto at = static_cast<std::size_t>(i);
                if (std::isinf(want[at]) || std::isinf(got[at])) {
                    if (got[at] != want[at]) f.tally.fail("row " + std::to_string(i / V) + ", token " + std::to_string(i % V) + ": expected " +
                                                          std::to_string(want[at]) + ", found " + std::to_string(got[at]));
                    continue;
                }
                f.tally.add(got[at], {double{want[at]}, got[at] == want[at] ? 0 : 2 * kUnit * (std::fabs(double{want[at]}) + 1)}, i / V, i % V);
            }
            if (const std::string damage = logits.damage(); !damage.empty()) f.tally.fail(damage);
            gathering_.add(std::string{"kernels.device."} + op, f);
        };

        std::vector<std::uint32_t> bits(static_cast<std::size_t>(2 * words));
        for (std::uint32_t& word : bits) word = static_cast<std::uint32_t>(c_.rng());
        const std::vector<std::int32_t> mask_of{1, -1, 0, 1};
        Guarded masks = guarded(2 * words), mask_row = guarded(rows);
        masks.set(std::span{reinterpret_cast<const std::int32_t*>(bits.data()), bits.size()});
        mask_row.set(std::span<const std::int32_t>{mask_of});
        logits.set(std::span<const float>{values});
        std::vector<float> want = values;
        for (std::int64_t r = 0; r < rows; ++r)
            if (const std::int32_t m = mask_of[static_cast<std::size_t>(r)]; m >= 0)
                sdk::reference::logits_mask(want.data() + r * V, V, bits.data() + m * words);
        c_.begin("kernels: device op logits_mask");
        fail_unless("logits_mask", device.ops().logits_mask(device.self(), &in, reinterpret_cast<const std::uint32_t*>(masks.data()), words,
                                                            mask_row.ints(), stream));
        judge("logits_mask", want);

        const std::vector<assay_logit_edit> edits{{0, 0, 1.3F, 0.5F}, {1, static_cast<std::int32_t>(V - 1), 0.8F, -2.0F}, {3, static_cast<std::int32_t>(V / 2), 1.0F, -1.0F}};
        std::vector<float> raw(edits.size() * sizeof(assay_logit_edit) / 4);
        std::memcpy(raw.data(), edits.data(), raw.size() * 4);
        Guarded device_edits = guarded(static_cast<std::int64_t>(raw.size()));
        device_edits.set(std::span<const float>{raw});
        logits.set(std::span<const float>{values});
        want = values;
        sdk::reference::logits_edit(want.data(), V, edits.data(), static_cast<std::int64_t>(edits.size()));
        c_.begin("kernels: device op logits_edit");
        fail_unless("logits_edit", device.ops().logits_edit(device.self(), &in, reinterpret_cast<const assay_logit_edit*>(device_edits.data()),
                                                            static_cast<std::int64_t>(edits.size()), stream));
        judge("logits_edit", want);
    }

    Context& c_;
    Gathering& gathering_;
    OpChecker checker_;
};

}  // namespace

void run_device(Context& c) {
    Gathering gathering{Level::kernels};
    try {
        DeviceReplay{c, gathering}.run();
    } catch (const base::StartError& e) {
        gathering.fail("kernels.device", {c.candidate.device.id(), {}, {}, -1}, e.what());
    }
    gathering.finish(c);
}

}  // namespace assay
