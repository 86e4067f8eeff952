#include "daemon/app/proof.hpp"

#include <unistd.h>

#include <cstdio>

#include "daemon/app/logging.hpp"
#include "daemon/app/prove.hpp"
#include "daemon/base/error.hpp"

namespace app {
namespace {

using Phase = base::ServiceState::Phase;

// Values of the metric verification_state.
constexpr int kNotRun = 0, kRunning = 1, kPassed = 2, kFailed = 3;

}  // namespace

std::string Proof::to_json() const {
    const std::lock_guard lock{mutex_};
    return report_.to_json();
}

void Proof::set_states(const Stack& stack, int state) {
    const auto set = [&](const char* component, const plugin::Choice& plugin) {
        registry_.set_series(metrics::Family::verification_state, {component, plugin.id + '@' + plugin.version}, state);
    };
    const plugin::Plan& plan = stack.resolution.plan;
    set("device", plan.device);
    set("attention", plan.prefill);
    set("attention", plan.decode);
    for (const plugin::Choice& quant : plan.quant) set("quant", quant);
}

void Proof::run(const config::Config& config, Stack& stack) {
    set_states(stack, kRunning);
    ProofObserver observer;
    observer.on_stage = [this](const std::string& line) { state_.advance(Phase::starting, Phase::starting, line); };
    observer.on_check = [this](const assay::Check& check) {
        const std::string line = "event=assay level=" + std::string{assay::name(check.level)} + " check=\"" + assay::to_line(check) + '"';
        check.verdict == assay::Verdict::failed ? log_error(line) : log_info(line);
        const std::lock_guard lock{mutex_};
        report_.checks.push_back(check);
    };
    observer.is_cancelled = [this] { return state_.phase() == Phase::draining; };
    observer.on_hang = [this](const assay::Check& check) {
        assay::Report hung;
        hung.checks.push_back(check);
        const std::string line = hung.diagnosis();
        // The backend does not come back, so nothing that waits for it can end in order.
        state_.set(Phase::failed, line);
        log_error("event=assay_hang detail=\"" + line + '"');
        flush_log();
        std::fprintf(stderr, "assayd: %s\n", line.c_str());
        std::fflush(nullptr);
        ::_exit(static_cast<int>(base::ExitCode::assay));
    };
    publish(prove(config, stack, observer), stack);
}

void Proof::publish(const assay::Report& report, const Stack& stack) {
    {
        const std::lock_guard lock{mutex_};
        report_ = report;
    }
    const bool passed = report.passed();
    const bool cancelled = report.finished_at == 0;
    set_states(stack, passed ? kPassed : cancelled ? kNotRun : kFailed);
    if (!report.from_cache) registry_.histogram(metrics::Family::verification_duration_seconds).observe(report.seconds);
    std::size_t count[3] = {};
    for (const assay::Check& check : report.checks) ++count[static_cast<std::size_t>(check.verdict)];
    log_info("event=assay_done passed=" + std::string{passed ? "true" : "false"} + " checks_passed=" + std::to_string(count[0]) +
             " checks_failed=" + std::to_string(count[1]) + " checks_not_run=" + std::to_string(count[2]) + " seconds=" +
             std::to_string(report.seconds) + " cached=" + (report.from_cache ? "true" : "false") + " seed=" + std::to_string(report.seed));
    if (passed || (cancelled && state_.phase() == Phase::draining)) return;
    state_.set(Phase::failed, report.diagnosis());
    throw base::AssayError{report.diagnosis()};
}

}  // namespace app
