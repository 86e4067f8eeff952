// assayctl bisect: where do two plans part, run on the same tokens?

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>

#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/prove.hpp"
#include "daemon/assay/host_tensor.hpp"
#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

struct Options {
    ModelOptions model;
    std::string against = "reference", against_config, tokens;
    int count = 160;
};

/// One value that the program made, on the host; dense.
struct Value {
    std::int64_t layer;
    std::string name;
    std::vector<float> data;
};

/// Keeps every f32 value of one step.
class Collector : public model::Tap {
public:
    Collector(const plugin::Device& device, const plugin::Stream& stream) : device_{device}, stream_{stream} {}
    std::vector<Value> values;

    void see(std::int64_t layer, const char* name, const assay_tensor& tensor, const assay_stream*) override {
        if (tensor.dtype != ASSAY_F32) return;  // choices differ in order where they do not in kind
        const assay::HostTensor host{tensor, device_, stream_};
        Value& value = values.emplace_back(Value{layer, name, {}});
        host.for_each([&](std::int64_t offset) { value.data.push_back(std::bit_cast<float>(host.bits(offset))); });
    }

private:
    const plugin::Device& device_;
    const plugin::Stream& stream_;
};

std::vector<Value> run(const config::Config& config, const Options& o, std::vector<std::int32_t>& tokens, std::string& plan) {
    StackOptions options;
    options.max_seqs = 1;
    options.max_tokens = options.max_logit_rows = tokens.empty() ? o.count : static_cast<std::int32_t>(tokens.size());
    options.min_kv_tokens = options.max_tokens;
    StartDisplay display;
    display.attach(options);
    Stack stack{config, options};
    display.done();
    plan = stack.plan_text();
    if (tokens.empty()) tokens = assay::probe_tokens(candidate_of(stack), std::min(o.count, stack.context_length()));
    const auto vocab = stack.hparams().vocab_size;
    for (const std::int32_t token : tokens)
        if (token < 0 || token >= vocab)
            throw base::StartError{base::ExitCode::usage, o.tokens + ": token " + std::to_string(token) + ", want 0 to " + std::to_string(vocab - 1)};
    model::StepDriver driver = stack.driver(1, static_cast<std::int32_t>(tokens.size()));
    Collector collector{*stack.resolution.device, *stack.stream};
    stack.runner->set_tap(&collector);
    const std::vector<std::vector<std::int32_t>> step{tokens};
    driver.step(step, true);
    stack.runner->set_tap(nullptr);
    return std::move(collector.values);
}

/// Root of the mean squared difference over that of the second; infinite where either is not finite.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
        size += double{b[i]} * double{b[i]};
    }
    if (!std::isfinite(difference) || !std::isfinite(size)) return INFINITY;
    return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

/// 1e-8 to 1 in forty columns.
std::string bar(double error) {
    const double length = std::isinf(error) ? 40 : std::clamp((std::log10(std::max(error, 1e-12)) + 8) * 5, 0.0, 40.0);
    return std::string(static_cast<std::size_t>(length), '#');
}

void bisect(const Options& o) {
    config::Config first = o.model.to_config(), second = first;
    if (!o.against_config.empty()) {
        ModelOptions other = o.model;
        other.config = o.against_config;
        other.backends.clear();
        second = other.to_config();
    } else {
        apply_backends(second, o.against);
    }
    for (config::Config* config : {&first, &second})
        if (config->kv.max_tokens == 0) config->kv.max_tokens = o.count;
    std::vector<std::int32_t> tokens;
    if (!o.tokens.empty()) tokens = read_tokens(o.tokens);
    std::string plan_a, plan_b;
    const std::vector<Value> a = run(first, o, tokens, plan_a), b = run(second, o, tokens, plan_b);
    std::printf("A: %sB: %s\nrelative error of A against B on %zu tokens; # is 1e-8 to 1, five columns a decade\n", plan_a.c_str(), plan_b.c_str(),
                tokens.size());

    // Rounding grows slowly from op to op. Where it grows tenfold at once, and is more than f32's own, is the
    // op to look at.
    double before = 1e-6;
    const Value* culprit = nullptr;
    double jump = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (a[i].layer != b[i].layer || a[i].name != b[i].name || a[i].data.size() != b[i].data.size())
            throw base::AssayError{"bisect: the plans make different values: " + a[i].name + " and " + b[i].name};
        const double error = relative_error(a[i].data, b[i].data);
        const bool is_jump = culprit == nullptr && error > 10 * before && error > 1e-4;
        if (is_jump) {
            culprit = &a[i];
            jump = error / before;
        }
        before = std::max(before, error);
        std::printf("%5s  %-16s %9.2e  %-40s%s\n", a[i].layer < 0 ? "" : std::to_string(a[i].layer).c_str(), a[i].name.c_str(), error, bar(error).c_str(),
                    is_jump ? "  <- first" : "");
    }
    if (culprit == nullptr) {
        std::printf("the plans agree: no value is off by more than rounding brings about\n");
        return;
    }
    throw base::AssayError{"bisect: the plans part at " + (culprit->layer < 0 ? std::string{} : "layer " + std::to_string(culprit->layer) + ", ") +
                           culprit->name + ": the error grows " + std::to_string(static_cast<long long>(std::min(jump, 1e15))) + "-fold there"};
}

}  // namespace

void add_bisect(CLI::App& cli) {
    auto* command = cli.add_subcommand("bisect", "Run two plans on the same tokens and name the first layer and value at which they part");
    command->footer(
        "Exit code 0 when they agree, 70 with the place when not. 'assayctl assay' asks the same question of every op with the "
        "definition's answer to its own input; this compares any two plans, from beginning to end.\n"
        "Example: assayctl bisect -m model.gguf --backends cuda --against cpu");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("--against", o->against, "Backends of the other plan; default: reference")->check(CLI::IsMember({"reference", "cpu", "cuda"}));
    command->add_option("--against-config", o->against_config, "Configuration of the other plan")->check(CLI::ExistingFile);
    command->add_option("--tokens", o->tokens, "File of 32-bit token ids; default: a text")->check(CLI::ExistingFile);
    command->add_option("--count", o->count, "Tokens of the text")->check(CLI::Range(2, 4096));
    command->callback([o] { bisect(*o); });
}

}  // namespace app::cli
