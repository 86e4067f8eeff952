// assayctl assay and calibrate: prove a model with its backends, and write down what it says when it is good.

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/prove.hpp"
#include "daemon/app/reference_plan.hpp"
#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

struct Options {
    ModelOptions model;
    std::string depth, calibration, out, note;
    std::int64_t seed = 0;
    bool json = false, cached = false;
};

/// As the daemon would, but for a cache that is as large as a proof needs and no larger.
config::Config to_config(const Options& o) {
    config::Config config = o.model.to_config();
    if (o.model.config.empty()) config.kv.max_tokens = 16'384;
    if (!o.depth.empty()) config.assay.depth = o.depth == "quick" ? config::AssayDepth::quick : config::AssayDepth::full;
    if (!o.calibration.empty()) config.assay.calibration = std::filesystem::absolute(o.calibration);
    if (o.seed != 0) config.assay.seed = o.seed;
    config.assay.cache = config.assay.cache && o.cached;
    return config;
}

void prove_model(const Options& o) {
    const config::Config config = to_config(o);
    StackOptions stack_options;
    StartDisplay display;
    display.attach(stack_options);
    Stack stack{config, stack_options};
    display.done();

    ProofObserver observer;
    observer.on_stage = stack_options.on_stage;
    observer.on_check = [&](const assay::Check& check) {
        if (o.json) return;
        display.done();
        std::printf("%-9s %s\n", std::string{assay::name(check.level)}.c_str(), assay::to_line(check).c_str());
        std::fflush(stdout);
    };
    observer.on_hang = [&](const assay::Check& check) {
        assay::Report report;
        report.model = config.model.path.string();
        report.checks.push_back(check);
        if (o.json) std::printf("%s\n", report.to_json().c_str());
        std::fprintf(stderr, "\nassayctl: %s\n", report.diagnosis().c_str());
        std::fflush(nullptr);
        ::_exit(static_cast<int>(base::ExitCode::assay));
    };
    const assay::Report report = prove(config, stack, observer);
    display.done();
    if (o.json) {
        std::printf("%s\n", report.to_json().c_str());
    } else {
        std::string text = report.to_text();
        // The checks were shown as they came, unless they came from the cache.
        if (!report.from_cache) text = text.substr(text.rfind('\n', text.size() - 2) + 1);
        std::printf("%s", text.c_str());
    }
    std::fflush(stdout);
    if (!report.passed()) throw base::AssayError{report.diagnosis()};
}

void calibrate_model(const Options& o) {
    config::Config config = to_config(o);
    StackOptions stack_options;
    StartDisplay display;
    display.attach(stack_options);
    Stack stack{config, stack_options};
    ReferencePlan reference{*stack.registry, config, *stack.file, stack.audit, *stack.lanes, stack.context_length()};
    const assay::ModelHashes hashes = assay::hash_model(*stack.file, stack.control_lanes->abi());
    assay::Calibration record = assay::calibrate(candidate_of(stack), reference.reference(), hashes, o.note);
    record.made_with = reference.plan().hash();
    display.done();
    const std::string path = o.out.empty() ? calibration_path(config).string() : o.out;
    std::ofstream out{path, std::ios::binary | std::ios::trunc};
    out << record.to_json();
    out.flush();
    if (!out) throw base::StartError{base::ExitCode::usage, path + ": cannot be written"};
    std::printf("%s: %zu tensors hashed, log-probability %.4g a token of the text, entropy %.4g\n", path.c_str(), record.tensors.size(),
                record.logprob, record.entropy);
}

}  // namespace

void add_assay(CLI::App& cli) {
    auto* command = cli.add_subcommand("assay", "Prove that backends and model do what they should, as the daemon does before it serves");
    command->footer(
        "Exit code 0 when everything that is required passed; 70 with one line that names the culprit when not; 65 and 78 "
        "when it does not come so far. Never reads a cached result unless asked to.\n"
        "Example: assayctl assay -m model.gguf --json > report.json");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("--depth", o->depth, "full or quick; default: the configuration, else full")->check(CLI::IsMember({"full", "quick"}));
    command->add_option("--calibration", o->calibration, "Calibration that judges the model")->check(CLI::ExistingFile);
    command->add_option("--seed", o->seed, "Seed of a report, to replay it")->check(CLI::PositiveNumber);
    command->add_flag("--cached", o->cached, "A result in the cache will do");
    command->add_flag("--json", o->json, "The report as JSON on standard output");
    command->callback([o] { prove_model(*o); });
}

void add_calibrate(CLI::App& cli) {
    auto* command = cli.add_subcommand("calibrate", "Write down what a model says by definition, to judge it by from then on");
    command->footer(
        "Do this when you have looked at the model's answers and found them good: from then on every start compares its "
        "tensors and logits with this record. The default file is MODEL.gguf.assay.json, where assayd looks for it.\n"
        "Example: assayctl calibrate -m model.gguf --note 'checked by hand, see ticket 12'");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("-o,--out", o->out, "File to write");
    command->add_option("--note", o->note, "Who found it good, and how");
    command->callback([o] { calibrate_model(*o); });
}

}  // namespace app::cli
