// Model level: real activations through every op of every layer, decode against prefill, and the whole
// against the reference.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "daemon/assay/context.hpp"
#include "daemon/assay/guarded.hpp"
#include "daemon/assay/logits.hpp"
#include "daemon/base/error.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
using Steps = std::vector<std::vector<std::int32_t>>;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string format(const char* pattern, double a, double b = 0, double c = 0, double d = 0) {
    char text[256];
    std::snprintf(text, sizeof text, pattern, a, b, c, d);
    return text;
}

/// Detaches the checker however a step ends.
class Intercepted {
public:
    Intercepted(model::Runner& runner, model::Interceptor& interceptor) : runner_{runner} { runner_.set_interceptor(&interceptor); }
    ~Intercepted() { runner_.set_interceptor(nullptr); }
    Intercepted(const Intercepted&) = delete;
    Intercepted& operator=(const Intercepted&) = delete;

private:
    model::Runner& runner_;
};

class ModelLevel {
public:
    explicit ModelLevel(Context& c)
        : c_{c},
          chunk_{c.candidate.runner.limits().max_tokens},
          max_rows_{c.candidate.runner.limits().max_logit_rows},
          vocab_{c.candidate.hparams().vocab_size} {}

    void run() {
        time_a_step();
        if (failed_) return;
        layers();
        if (failed_ || c_.cancelled()) return;
        decode();
        if (failed_ || c_.cancelled()) return;
        end_to_end();
    }

private:
    [[nodiscard]] model::StepDriver driver(std::int32_t sequences, std::int32_t max_len) const {
        return {c_.candidate.runner, c_.candidate.cache, c_.candidate.device, c_.candidate.stream, sequences, max_len};
    }
    void fail(const std::string& id, const std::string& what, Clock::time_point begin) {
        failed_ = true;
        Check check;
        check.id = id;
        check.level = Level::model;
        check.subject.plugin = c_.candidate.plan.decode.id;
        check.verdict = Verdict::failed;
        check.figure = 1e308;
        check.seconds = seconds_since(begin);
        check.detail = what;
        c_.add(std::move(check));
    }
    void judge(const std::string& id, double figure, double bound, const std::string& what, Clock::time_point begin,
               const std::string& plugin = {}) {
        Check check;
        check.id = id;
        check.level = Level::model;
        check.figure = figure;
        check.bound = bound;
        check.verdict = figure <= bound ? Verdict::passed : Verdict::failed;  // NaN fails
        check.seconds = seconds_since(begin);
        check.detail = what;
        if (check.verdict == Verdict::failed) {
            failed_ = true;
            check.subject.plugin = plugin;
        }
        c_.add(std::move(check));
    }

    /// How long tokens take here, so that probes can be as long as the depth's time allows.
    void time_a_step() {
        c_.begin("model: a first step");
        const auto begin = Clock::now();
        const std::int32_t n = std::min({16, c_.max_len() - 1, chunk_});
        try {
            model::StepDriver d = driver(1, n + 1);
            d.step(Steps{probe_tokens(c_.candidate, n)}, false);
            prefill_token_seconds_ = seconds_since(begin) / n;
            const auto then = Clock::now();
            d.step(Steps{probe_tokens(c_.candidate, 1)}, false);
            decode_seconds_ = seconds_since(then);
        } catch (const base::StartError& e) {
            fail("model.step", e.what(), begin);
        }
    }

    /// Every op of every layer on real activations, against the definition on the same inputs.
    void layers() {
        const model::Hparams& h = c_.candidate.hparams();
        const std::int32_t page = c_.candidate.cache.block_size();
        std::vector<std::int32_t> limits{page};
        for (const model::LayerParams& layer : h.layers)
            if (layer.window > 0) limits.push_back(layer.window);
        if (h.index_topk > 0) limits.push_back(static_cast<std::int32_t>(h.index_topk));
        std::sort(limits.begin(), limits.end());
        limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
        const std::int32_t wanted = limits.back() + 8;
        const auto affordable = static_cast<std::int32_t>(std::min(1e6, c_.options.depth.seconds / 4 / prefill_token_seconds_));
        const std::int32_t n = std::min({wanted, std::max(affordable, page + 8), c_.max_len()});

        Gathering gathering{Level::model};
        std::string where;
        OpChecker checker = c_.checker([&](const Finding& f) {
            gathering.add(f.layer < 0 ? "model.ends" : "model.layer." + std::to_string(f.layer), f, where);
        });
        const auto tokens = probe_tokens(c_.candidate, n);
        try {
            model::StepDriver d = driver(1, n);
            const Intercepted intercepted{c_.candidate.runner, checker};
            // Two prompts' worth of chunks, the first of which ends on no boundary, and a decode.
            for (std::int32_t at = 0; at < n;) {
                const std::int32_t end = at == 0 ? std::min({page + 3, n - 1, chunk_}) : at < n - 1 ? std::min(n - 1, at + chunk_) : n;
                Sampling sampling;
                sampling.max_rows = 8;
                sampling.max_cols = std::clamp<std::int64_t>(c_.options.depth.max_cols_elements / 4 / h.hidden_size, 32, 4096);
                for (const std::int32_t limit : limits)
                    for (const std::int32_t row : {limit - 1, limit}) sampling.rows.push_back(row - at);
                checker.set_sampling(std::move(sampling));
                where = end == n ? "decode at position " + std::to_string(at)
                                 : "prefill of positions " + std::to_string(at) + " to " + std::to_string(end - 1);
                const std::vector<std::int32_t> rows{end - at - 1};
                d.step(Steps{{tokens.begin() + at, tokens.begin() + end}}, rows);
                at = end;
            }
        } catch (const base::StartError& e) {
            gathering.fail("model.step", {}, where + ": " + e.what());
        }
        const std::size_t before = c_.report.checks.size();
        gathering.finish(c_);
        for (std::size_t i = before; i < c_.report.checks.size(); ++i) failed_ = failed_ || c_.report.checks[i].verdict == Verdict::failed;
        for (const std::int32_t limit : limits)
            if (limit >= n)
                c_.not_run("model.limit." + std::to_string(limit), Level::model,
                           n == c_.max_len() ? "no sequence can be that long here"
                                             : "a prompt of " + std::to_string(limit + 8) + " tokens takes longer than this depth allows; the level "
                                               "kernels asked attention about it",
                           false);
    }

    [[nodiscard]] bool declares_equal_bits() const {
        if (std::string_view{c_.candidate.device.ref().kind} != "cpu") return false;
        if (c_.candidate.prefill.id() != c_.candidate.decode.id()) return false;  // two programs, each with bits of its own
        for (const plugin::Attention* a : {&c_.candidate.prefill, &c_.candidate.decode})
            for (std::uint32_t i = 0; i < a->api().num_caps; ++i)
                if (a->api().caps[i]->attn_class == c_.candidate.hparams().attn_class && (a->api().caps[i]->flags & ASSAY_ATTN_ORDERED) == 0) return false;
        bool all = true;
        for (std::size_t r = 0; r < model::kNumRoles; ++r)
            for (std::int64_t l = -1; l < c_.candidate.hparams().num_layers; ++l) {
                const auto role = static_cast<model::Role>(r);
                const model::Weight& w = l < 0 ? c_.candidate.weights.whole(role) : c_.candidate.weights.layer(l, role);
                if (w && w.quant != nullptr) all = all && (w.quant->api().flags & ASSAY_QUANT_ROW_INVARIANT) != 0;
            }
        return all;
    }

    /// The same tokens prefilled and decoded, one by one where time allows, else in parallel runs that each
    /// begin with the blocks of what is before them.
    void decode() {
        const auto begin = Clock::now();
        const std::int32_t page = c_.candidate.cache.block_size();
        const std::int64_t cached = static_cast<std::int64_t>(c_.candidate.cache.num_blocks()) * page;
        const bool one_by_one = decode_seconds_ * c_.options.depth.num_decode_steps <= c_.options.depth.seconds / 3 ||
                                c_.candidate.runner.limits().max_seqs < 4;
        const std::int32_t lanes = one_by_one ? 1 : std::min(8, c_.candidate.runner.limits().max_seqs - 1);
        // Every sequence needs blocks for all of it, shared ones included.
        std::int32_t n = static_cast<std::int32_t>(
            std::min<std::int64_t>({c_.options.depth.num_decode_steps, c_.max_len(), cached / (lanes + 1) / page * page}));
        std::int32_t each = one_by_one ? n : n / lanes / page * page;
        if (each == 0) each = n / lanes;
        if (!one_by_one && each % page != 0) return not_decoded("the cache holds too few blocks");
        n = one_by_one ? n : each * lanes;
        if (n < 2) return not_decoded("the cache holds too few tokens");
        c_.begin("model: " + std::to_string(n) + " positions decoded and prefilled");
        const auto tokens = probe_tokens(c_.candidate, n);
        const auto rows = spread(n, std::min(128, n));
        try {
            model::StepDriver d = driver(lanes + 1, n);
            const std::vector<float> prefilled = prefill_logits(d, 0, lanes + 1, tokens, rows, chunk_, max_rows_);
            std::vector<float> decoded(prefilled.size());
            for (std::int32_t lane = 0; lane < lanes; ++lane)
                if (lane > 0) d.share(0, lane + 1, lane * each);
            for (std::int32_t i = 0; i < each; ++i) {
                if (c_.cancelled()) return;
                c_.begin("model: decode step " + std::to_string(i + 1) + " of " + std::to_string(each) + ", attention plugin " +
                         c_.candidate.plan.decode.id);
                Steps step(static_cast<std::size_t>(lanes) + 1);
                for (std::int32_t lane = 0; lane < lanes; ++lane) step[static_cast<std::size_t>(lane) + 1] = {tokens[static_cast<std::size_t>(lane * each + i)]};
                d.step(step, false);
                const std::vector<float>* logits = nullptr;
                // Sequences that decode come first; the first one's first token has nothing before it.
                for (std::int32_t lane = 0; lane < lanes; ++lane) {
                    const auto row = std::lower_bound(rows.begin(), rows.end(), lane * each + i);
                    if (row == rows.end() || *row != lane * each + i) continue;
                    if (logits == nullptr) logits = &d.logits();
                    const std::int32_t in_step = i > 0 ? lane : lane == 0 ? lanes - 1 : lane - 1;
                    std::copy_n(logits->begin() + in_step * vocab_, vocab_, decoded.begin() + (row - rows.begin()) * vocab_);
                }
            }
            const std::string how = std::to_string(n) + " positions, " +
                                    (one_by_one ? std::string{"one by one"} : std::to_string(lanes) + " sequences of " + std::to_string(each) + " steps");
            const LogitDifference difference = compare_logits(decoded, prefilled, vocab_);
            if (!difference.is_finite) return fail("model.decode", "logits that are not finite at position " + std::to_string(rows[static_cast<std::size_t>(difference.worst_row)]), begin);
            if (declares_equal_bits()) {
                std::int32_t first = -1;
                for (std::size_t r = 0; r < rows.size() && first < 0; ++r)
                    if (!same_bits(std::span{decoded}.subspan(r * static_cast<std::size_t>(vocab_), static_cast<std::size_t>(vocab_)),
                                   std::span{prefilled}.subspan(r * static_cast<std::size_t>(vocab_), static_cast<std::size_t>(vocab_))))
                        first = rows[r];
                judge("model.decode", difference.worst, first < 0 ? difference.worst : 0,
                      how + (first < 0 ? ": the same bits as in one prefill"
                                       : ": the plugins declare results that do not depend on the batch, and logits differ from those of a prefill "
                                         "from position " + std::to_string(first) + " on" + format(" (relative error up to %.2g)", difference.worst)),
                      begin, c_.candidate.plan.decode.id);
            } else {
                judge("model.decode", difference.typical, logit_bound(c_.candidate),
                      how + format(": relative error %.2g typical, %.2g worst; KL %.2g", difference.typical, difference.worst, difference.kl), begin,
                      c_.candidate.plan.decode.id);
            }
            if (failed_) return;
            const auto again = Clock::now();
            d.reset();
            const bool is_same = same_bits(prefilled, prefill_logits(d, 0, lanes + 1, tokens, rows, chunk_, max_rows_));
            judge("model.repeat", is_same ? 0 : 1, 0, is_same ? "a second prefill gave the same bits" : "a second prefill of the same tokens gave other bits",
                  again);
        } catch (const base::StartError& e) {
            fail("model.decode", e.what(), begin);
        }
    }
    void not_decoded(const std::string& why) { c_.not_run("model.decode", Level::model, why); }

    /// The whole model by definition, for models that are small enough.
    void end_to_end() {
        std::int64_t params = 0;
        for (const model::FileTensor& tensor : c_.candidate.file.tensors()) {
            std::int64_t n = 1;
            for (const std::int64_t dim : tensor.shape) n *= dim;
            params += n;
        }
        if (params > c_.options.depth.max_reference_params)
            return c_.not_run("model.end_to_end", Level::model,
                              c_.options.depth.max_reference_params == 0
                                  ? "not at depth " + c_.options.depth.name
                                  : std::to_string(params / 1'000'000) + " million parameters are more than this depth runs by definition",
                              false);
        c_.begin("model: the reference end to end");
        const auto begin = Clock::now();
        const std::int64_t limit = std::max<std::int64_t>(c_.candidate.cache.block_size(), std::min<std::int64_t>(c_.candidate.hparams().index_topk, 512));
        const auto n = static_cast<std::int32_t>(std::min<std::int64_t>(limit + 24, c_.max_len()));
        const auto tokens = probe_tokens(c_.candidate, n);
        const auto rows = spread(n, std::min({48, n, max_rows_}));
        try {
            model::StepDriver own = driver(1, n);
            const std::vector<float> got = prefill_logits(own, 0, 1, tokens, rows, chunk_, max_rows_);
            model::StepDriver definition = c_.reference.driver(n);
            const std::vector<float> want = prefill_logits(definition, 0, 1, tokens, rows, n, static_cast<std::int32_t>(rows.size()));
            const LogitDifference d = compare_logits(got, want, vocab_);
            c_.report.figures = {{"logit_kl", d.kl}, {"max_abs_err", d.max_abs}, {"nmse", d.nmse}, {"top1_agreement_ratio", d.top1}};
            judge("model.end_to_end", d.typical, logit_bound(c_.candidate),
                  format("relative error of logits %.2g typical, %.2g worst; KL %.2g; first choices agree %.3g", d.typical, d.worst, d.kl, d.top1), begin);
        } catch (const base::StartError& e) {
            fail("model.end_to_end", e.what(), begin);
        }
    }

    Context& c_;
    std::int32_t chunk_, max_rows_;
    std::int64_t vocab_;
    double prefill_token_seconds_ = 0, decode_seconds_ = 0;
    bool failed_ = false;
};

}  // namespace

void run_model(Context& c) { ModelLevel{c}.run(); }

}  // namespace assay
