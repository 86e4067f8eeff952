// Coherence level: does the whole say what a language model would.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "daemon/assay/context.hpp"
#include "daemon/assay/logits.hpp"
#include "daemon/base/error.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

/// Kernels are cleared when this level is reached.
constexpr const char* kSuspects = "; kernels and layers are cleared: the model file or its architecture table is suspected";

std::string format(const char* pattern, double a, double b = 0) {
    char text[200];
    std::snprintf(text, sizeof text, pattern, a, b);
    return text;
}

double mean(const std::vector<double>& values) {
    return values.empty() ? 0.0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class Coherence {
public:
    explicit Coherence(Context& c)
        : c_{c},
          chunk_{c.candidate.runner.limits().max_tokens},
          max_rows_{c.candidate.runner.limits().max_logit_rows},
          vocab_{c.candidate.hparams().vocab_size} {}

    void run() {
        const auto& calibration = c_.options.calibration;
        if (calibration) judge_by(*calibration);
        for (const Probe& probe : c_.options.probes) ask(probe, "coherence.probe." + probe.name);
        for (const Probe& probe : built_in_probes()) {
            const std::string id = "coherence.built_in." + probe.name;
            if (calibration)
                c_.not_run(id, Level::coherence, "a calibration judges this model", false);
            else
                ask(probe, id);
        }
        if (!calibration) look_for_noise();
    }

private:
    Check begin_check(const std::string& id) const {
        Check check;
        check.id = id;
        check.level = Level::coherence;
        check.subject.plugin = {};
        return check;
    }
    void finish(Check check, bool passed, Clock::time_point begin) {
        check.verdict = passed ? Verdict::passed : Verdict::failed;
        check.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        c_.add(std::move(check));
    }
    [[nodiscard]] std::vector<float> logits(std::span<const std::int32_t> tokens, std::span<const std::int32_t> rows) const {
        model::StepDriver driver{c_.candidate.runner, c_.candidate.cache,  c_.candidate.device,
                                 c_.candidate.stream, 1, static_cast<std::int32_t>(tokens.size())};
        return prefill_logits(driver, 0, 1, tokens, rows, chunk_, max_rows_);
    }

    /// Tokens of a text, and "" or why this vocabulary cannot spell it.
    std::string encode(const std::string& text, std::vector<std::int32_t>& tokens) const {
        text::EncodeOptions options;
        options.add_special = true;
        const auto encoded = c_.candidate.tokenizer.encode(text, options);
        if (!encoded) return "the tokenizer cannot read it: " + encoded.error().message();
        tokens = *encoded;
        for (const std::int32_t token : tokens) {
            if (token < 0 || token >= vocab_) return "it has a token outside the vocabulary";
            if (token == c_.candidate.tokenizer.special().unk) return "the vocabulary has no token for part of it";
        }
        const auto max_len = static_cast<std::size_t>(c_.max_len());
        return tokens.size() > max_len ? "it is longer than the cache" : std::string{};
    }

    void ask(const Probe& probe, const std::string& id) {
        if (c_.cancelled()) return;
        const auto begin = Clock::now();
        c_.begin("coherence: " + probe.name);
        std::vector<std::int32_t> prompt, whole;
        std::string why = encode(probe.prompt, prompt);
        if (why.empty()) why = encode(probe.prompt + probe.expected, whole);
        // Where prompt and continuation meet, their tokens may join: what is new begins behind what is common.
        const auto common = static_cast<std::size_t>(
            std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).first - prompt.begin());
        if (why.empty() && (common == 0 || common >= whole.size())) why = "prompt and continuation have no token of their own";
        if (!why.empty()) return c_.not_run(id, Level::coherence, why, false);
        std::vector<std::int32_t> rows;
        for (std::size_t i = common; i < whole.size(); ++i) rows.push_back(static_cast<std::int32_t>(i) - 1);
        Check check = begin_check(id);
        try {
            const RowStatistics found = row_statistics(logits(whole, rows), std::span{whole}.subspan(common), vocab_);
            const double score = mean(found.logprob);
            // Passed: figure <= bound, so both are without their sign.
            check.figure = -score;
            check.bound = -probe.floor;
            const bool passed = found.is_finite && score >= probe.floor;
            check.detail = format("log-probability %.3g a token of \"", score) + probe.expected + format("\", floor %.3g", probe.floor);
            if (!passed) {
                const auto worst = std::min_element(found.logprob.begin(), found.logprob.end()) - found.logprob.begin();
                const auto token = whole[common + static_cast<std::size_t>(worst)];
                check.detail += ", after \"" + probe.prompt.substr(0, 60) + "\"; least likely: token " + std::to_string(token) + " \"" +
                                std::string{c_.candidate.tokenizer.token_piece(token)} + "\"" + kSuspects;
            }
            finish(std::move(check), passed, begin);
        } catch (const base::StartError& e) {
            check.detail = e.what();
            finish(std::move(check), false, begin);
        }
    }

    /// Three fingerprints of noise on plain text: distributions as flat as chance, one token whatever the
    /// context, text no likelier than letters drawn at random.
    void look_for_noise() {
        if (c_.cancelled()) return;
        c_.begin("coherence: entropy and repetition");
        const auto begin = Clock::now();
        const auto n = std::min(96, c_.max_len());
        const auto tokens = probe_tokens(c_.candidate, n);
        const auto rows = spread(n - 1, 64);
        std::vector<std::int32_t> next;
        for (const std::int32_t row : rows) next.push_back(tokens[static_cast<std::size_t>(row) + 1]);
        try {
            const RowStatistics found = row_statistics(logits(tokens, rows), next, vocab_);
            const double chance = std::log(static_cast<double>(vocab_));
            Check check = begin_check("coherence.finite");
            check.detail = found.is_finite ? "every logit is finite" : "logits hold NaN or infinities";
            finish(std::move(check), found.is_finite, begin);
            check = begin_check("coherence.flat");
            check.figure = found.entropy / chance;
            check.bound = 0.9;
            check.detail = format("mean entropy %.3g nats, chance is %.3g", found.entropy, chance) + (check.figure <= check.bound ? "" : kSuspects);
            const bool is_peaked = check.figure <= check.bound;
            finish(std::move(check), is_peaked, begin);
            check = begin_check("coherence.stuck");
            check.figure = 1.0 / static_cast<double>(found.distinct);
            check.bound = 1.0 / 3;
            check.detail = std::to_string(found.distinct) + " different first choices at " + std::to_string(rows.size()) + " positions" +
                           (found.distinct >= 3 ? "" : kSuspects);
            finish(std::move(check), found.distinct >= 3, begin);
        } catch (const base::StartError& e) {
            Check check = begin_check("coherence.finite");
            check.detail = e.what();
            finish(std::move(check), false, begin);
        }
    }

    void judge_by(const Calibration& record) {
        const auto begin = Clock::now();
        c_.begin("coherence: calibration");
        Check check = begin_check("coherence.calibration.file");
        if (record.model_hash != c_.options.model_hash) {
            const ModelHashes now = hash_model(c_.candidate.file, c_.reference.lanes);
            std::string differing;
            std::size_t count = 0;
            for (const auto& [name, hash] : record.tensors) {
                const auto found = now.tensors.find(name);
                if (found != now.tensors.end() && found->second == hash) continue;
                if (count++ == 0) check.subject.tensor = name;
                if (count <= 4) differing += (differing.empty() ? "" : ", ") + name + (found == now.tensors.end() ? " (missing)" : "");
            }
            check.figure = static_cast<double>(std::max<std::size_t>(count, 1));
            check.detail = count > 0 ? std::to_string(count) + " tensors are not those that the calibration was made for: " + differing
                                     : "metadata or tensor list are not those that the calibration was made for";
            return finish(std::move(check), false, begin);
        }
        check.detail = std::to_string(record.tensors.size()) + " tensors as they were when the calibration was made";
        finish(std::move(check), true, begin);

        check = begin_check("coherence.calibration.logits");
        const auto in_vocab = [&](std::int32_t t) { return t >= 0 && t < vocab_; };
        if (!std::all_of(record.tokens.begin(), record.tokens.end(), in_vocab) || !std::all_of(record.ids.begin(), record.ids.end(), in_vocab)) {
            check.detail = "the calibration holds tokens outside the vocabulary";
            return finish(std::move(check), false, begin);
        }
        const auto fits = static_cast<std::size_t>(c_.max_len());
        std::vector<std::int32_t> tokens = record.tokens, rows;
        tokens.resize(std::min(tokens.size(), fits));
        for (const std::int32_t row : record.rows)
            if (static_cast<std::size_t>(row) < tokens.size()) rows.push_back(row);
        try {
            const std::vector<float> all = logits(tokens, rows);
            const std::size_t width = record.ids.size();
            std::vector<float> got;
            for (std::size_t r = 0; r < rows.size(); ++r)
                for (const std::int32_t id : record.ids) got.push_back(all[r * static_cast<std::size_t>(vocab_) + static_cast<std::size_t>(id)]);
            const LogitDifference d = compare_logits(got, std::span{record.logits}.first(rows.size() * width), static_cast<std::int64_t>(width));
            check.figure = d.typical;
            check.bound = logit_bound(c_.candidate);
            check.detail = format("relative error of the logits %.2g typical, %.2g worst", d.typical, d.worst);
            const bool is_near = d.is_finite && d.typical <= check.bound;
            if (!is_near) check.detail += kSuspects;
            finish(std::move(check), is_near, begin);
        } catch (const base::StartError& e) {
            check.detail = e.what();
            finish(std::move(check), false, begin);
        }
    }

    Context& c_;
    std::int32_t chunk_, max_rows_;
    std::int64_t vocab_;
};

}  // namespace

void run_coherence(Context& c) { Coherence{c}.run(); }

std::span<const Probe> built_in_probes() {
    // Chance is below -8 nats in the smallest vocabularies that spell these. Who can go on with a series at
    // all is nearly certain of it; -0.3 is a geometric mean of 0.74 a token. A sentence has other ways to go on.
    static const std::array<Probe, 4> kProbes = {{
        {"counting", "1 2 3 4 5 6 7 8 9 10", " 11 12 13 14", -0.3},
        {"alphabet", "a b c d e f g h", " i j k", -0.3},
        {"repetition", "red green blue yellow white. red green blue yellow white. red green blue yellow white. red", " green blue yellow white", -0.3},
        {"closing", "\"Yes,\" said Tom. \"No,\" said Tom. \"Yes,\" said Tom. \"No", ",\" said Tom.", -2.5},
    }};
    return kProbes;
}

}  // namespace assay
