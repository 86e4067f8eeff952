#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/assay/calibration.hpp"
#include "daemon/assay/probes.hpp"
#include "daemon/assay/report.hpp"
#include "daemon/model/audit.hpp"
#include "daemon/model/kv_cache.hpp"
#include "daemon/model/model_file.hpp"
#include "daemon/model/runner.hpp"
#include "daemon/model/step_driver.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/instance.hpp"
#include "daemon/plugin/resolve.hpp"
#include "daemon/text/tokenizer.hpp"

namespace assay {

/// The model and the backends that are to be proven: exactly what will serve, or, beside traffic, what
/// will, on a runner and cache of its own. Outlives the run, which uses the runner and the cache's
/// content alone; pages keep no meaning afterwards.
struct Candidate {
    const model::ModelFile& file;
    const model::AuditReport& audit;
    const text::Tokenizer& tokenizer;
    const plugin::Plan& plan;
    const plugin::Device& device;
    const plugin::Stream& stream;
    const model::Weights& weights;
    const plugin::Attention& prefill;
    const plugin::Attention& decode;
    bool mixed = false;  ///< both phases of a step may go in one call
    const model::KvCache& cache;
    model::Runner& runner;
    std::int32_t context_length = 0;

    [[nodiscard]] const model::Hparams& hparams() const { return audit.hparams; }
};

/// The same model by definition: the reference plugins with weights of their own, in host memory.
struct Reference {
    const plugin::Device& device;
    const plugin::Stream& stream;
    const model::Weights& weights;
    const assay_lanes* lanes;
    /// A driver of one sequence of at most max_len tokens; makes the reference's runner when it is first
    /// asked for.
    std::function<model::StepDriver(std::int32_t max_len)> driver;
};

/// How deep to look. Levels are always all six; what a depth leaves out is listed as not run.
struct Depth {
    std::string name;
    std::vector<std::int64_t> row_counts;   ///< rows of each product
    std::int64_t max_cols_elements = 0;     ///< decoded weight elements per product
    std::int32_t num_decode_steps = 0;      ///< positions that are decoded and prefilled
    std::int64_t max_reference_params = 0;  ///< models with more are not run end to end
    double seconds = 0;                     ///< aim for the model level; probes are shortened for it
};
[[nodiscard]] Depth full_depth();
[[nodiscard]] Depth quick_depth();

/// What is being run at this moment, for /readyz and for whoever watches that something moves. Any
/// thread.
class Activity {
public:
    using Clock = std::chrono::steady_clock;
    void begin(std::string what) {
        const std::lock_guard lock{mutex_};
        what_ = std::move(what);
        since_ = Clock::now();
    }
    void set_level(Level level) {
        const std::lock_guard lock{mutex_};
        level_ = level;
    }
    [[nodiscard]] Level level() const {
        const std::lock_guard lock{mutex_};
        return level_;
    }
    [[nodiscard]] std::string what() const {
        const std::lock_guard lock{mutex_};
        return what_;
    }
    /// How long it has been running; zero while nothing is.
    [[nodiscard]] std::chrono::milliseconds running() const {
        const std::lock_guard lock{mutex_};
        if (what_.empty()) return {};
        return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since_);
    }

private:
    mutable std::mutex mutex_;
    std::string what_;
    Level level_ = Level::kernels;
    Clock::time_point since_{};
};

struct Options {
    Depth depth = full_depth();
    std::vector<Probe> probes;                ///< configured ones, beside the built-in
    std::optional<Calibration> calibration;   ///< judges the model in place of the built-in probes
    std::uint64_t seed = 0;                   ///< 0: a fresh one
    std::string model_hash;
    Activity* activity = nullptr;
    std::function<void(const Check&)> on_check;  ///< as each is answered
    std::function<bool()> is_cancelled;          ///< asked between checks; a cancelled run is not passed
};

/// Proves the candidate. Never throws for what a backend does wrong: that is a failed check. A level
/// whose precondition failed is left out, with that reason.
[[nodiscard]] Report run(const Candidate& candidate, const Reference& reference, const Options& options);

/// Tokens of a plain English text, long enough or repeated; of any vocabulary that cannot spell it,
/// pseudo-random ids.
[[nodiscard]] std::vector<std::int32_t> probe_tokens(const Candidate& candidate, std::int32_t count);

}  // namespace assay
