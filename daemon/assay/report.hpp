#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// The levels of a proof, each a precondition of the next (docs/assay.md).
enum class Level : std::uint8_t { resolve, audit, kernels, model, coherence, watch };
inline constexpr std::size_t kNumLevels = 6;
[[nodiscard]] std::string_view name(Level level);

/// Not run never counts as passed.
enum class Verdict : std::uint8_t { passed, failed, not_run };
[[nodiscard]] std::string_view name(Verdict verdict);

/// What a check is about, as far as it is about one thing. Empty fields are not shown.
struct Subject {
    std::string plugin;       ///< plugin id
    std::string tensor;       ///< name in the model file
    std::string op;           ///< "attn_qkv", "attention.run"
    std::int64_t layer = -1;  ///< -1: none

    /// "layer 3, attention.run, plugin cpu-flash, tensor blk.3.attn_q.weight".
    [[nodiscard]] std::string to_text() const;
};

/// One question that was asked of the backends or the model, and its answer.
struct Check {
    std::string id;  ///< stable: "kernels.matmul.q4_k", "model.layer.3"
    Level level = Level::kernels;
    Subject subject;
    double figure = 0;  ///< what was measured; its meaning goes with the id
    double bound = 0;   ///< passed: figure <= bound
    double seconds = 0;
    Verdict verdict = Verdict::not_run;
    /// Whether readiness needs it. Checks that a smaller depth leaves out are not required; they are
    /// listed as not run, with the reason.
    bool required = true;
    std::string detail;  ///< on failure: what, where, expected, found. Not run: why.
};

/// Everything that one run asked.
struct Report {
    std::vector<Check> checks;
    std::string model;        ///< path
    std::string model_hash;   ///< what the results hold for
    std::string plan_hash;
    std::string depth;        ///< "full" or "quick"
    std::uint64_t seed = 0;   ///< replays the random inputs
    double seconds = 0;
    std::int64_t finished_at = 0;  ///< seconds since 1970; 0: not finished
    bool from_cache = false;
    /// How far the logits of the candidate are from the reference's, where both were run: "logit_kl",
    /// "max_abs_err", "nmse", "top1_agreement_ratio".
    std::map<std::string, double> figures;

    /// Finished, nothing failed, nothing that is required was left out, and each of the levels
    /// kernels, model and coherence asked and passed something.
    [[nodiscard]] bool passed() const;
    [[nodiscard]] bool passed(Level level) const;
    [[nodiscard]] const Check* first_failure() const;
    /// One line that names level, culprit, expected and found; "" when passed().
    [[nodiscard]] std::string diagnosis() const;
    /// A table for people, one line a check, and the verdict.
    [[nodiscard]] std::string to_text() const;
    [[nodiscard]] std::string to_json() const;
    /// Throws std::exception when the text is not what to_json() writes.
    [[nodiscard]] static Report from_json(std::string_view text);
};

/// "passed   kernels    kernels.matmul.q4_k  0.31 of bound  12 ms …": one line of the table.
[[nodiscard]] std::string to_line(const Check& check);

}  // namespace assay
