#include "daemon/assay/run.hpp"

#include <ctime>

#include "daemon/assay/context.hpp"
#include "daemon/base/error.hpp"

namespace assay {
namespace {

/// The first two levels are done when there is a candidate at all: what they found is written down.
void record_first_levels(Context& c) {
    Check check;
    check.verdict = Verdict::passed;
    check.level = Level::resolve;
    check.id = "resolve.plan";
    check.detail = "plan " + c.candidate.plan.hash() + ": device " + c.candidate.plan.device.id + ", prefill " + c.candidate.plan.prefill.id +
                   ", decode " + c.candidate.plan.decode.id;
    for (const plugin::Choice& quant : c.candidate.plan.quant) check.detail += ", quant " + quant.id;
    c.add(check);
    check.level = Level::audit;
    check.id = "audit.tensors";
    check.detail = std::to_string(c.candidate.audit.num_used) + " tensors used, " + std::to_string(c.candidate.audit.num_skipped) +
                   " skipped, none missing, none unread";
    c.add(check);
}

}  // namespace

Depth full_depth() { return {"full", {1, 2, 3, 8, 17, 64}, 2'000'000, 256, 200'000'000, 9.0}; }
Depth quick_depth() { return {"quick", {1, 3, 17}, 300'000, 48, 0, 2.0}; }

Report run(const Candidate& candidate, const Reference& reference, const Options& options) {
    const auto begin = std::chrono::steady_clock::now();
    Report report;
    report.model = candidate.file.path();
    report.model_hash = options.model_hash;
    report.plan_hash = candidate.plan.hash();
    report.depth = options.depth.name;
    Context context{candidate, reference, options, report};
    record_first_levels(context);

    struct Stage {
        Level level;
        void (*run)(Context&);
    };
    constexpr Stage kStages[] = {{Level::kernels, run_products},
                                 {Level::kernels, run_attention},
                                 {Level::kernels, run_device},
                                 {Level::model, run_model},
                                 {Level::coherence, run_coherence}};
    for (const Stage& stage : kStages) {
        if (context.cancelled()) {
            context.not_run(std::string{name(stage.level)}, stage.level, "the run was cancelled");
            continue;
        }
        // A level whose precondition failed says nothing.
        if (const Check* failed = report.first_failure(); failed != nullptr && failed->level != stage.level) {
            context.not_run(std::string{name(stage.level)}, stage.level, "level " + std::string{name(failed->level)} + " failed");
            continue;
        }
        if (options.activity != nullptr) options.activity->set_level(stage.level);
        try {
            stage.run(context);
        } catch (const base::StartError& e) {
            Check check;
            check.id = std::string{name(stage.level)} + ".error";
            check.level = stage.level;
            check.verdict = Verdict::failed;
            check.detail = e.what();
            context.add(std::move(check));
        }
    }
    context.begin("");
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!context.cancelled()) report.finished_at = std::time(nullptr);
    return report;
}

}  // namespace assay
