// assayctl logits: the raw numbers, for every numerical check.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/cli/validators.hpp"
#include "daemon/model/step_driver.hpp"
#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

struct Options {
    ModelOptions model;
    std::string tokens, out;
    int chunk = 0;
};

void run(const Options& o) {
    const auto tokens = read_tokens(o.tokens);
    const auto count = static_cast<std::int32_t>(tokens.size());
    const std::int32_t chunk = o.chunk > 0 ? std::min(o.chunk, count) : count;

    config::Config config = o.model.to_config();
    StackOptions options;
    options.max_seqs = 1;
    options.max_tokens = chunk;
    options.max_logit_rows = chunk;
    options.min_kv_tokens = count;
    config.model.context_length = 0;
    StartDisplay display;
    display.attach(options);
    Stack stack{config, options};
    display.done();
    const auto vocab = stack.hparams().vocab_size;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            throw base::StartError{base::ExitCode::usage, o.tokens + ": token " + std::to_string(i) + " is " +
                                                              std::to_string(tokens[i]) + ", want 0 to " +
                                                              std::to_string(vocab - 1)};
    if (count > stack.context_length())
        throw base::StartError{base::ExitCode::usage, o.tokens + ": " + std::to_string(count) +
                                                          " tokens, the model's context holds " +
                                                          std::to_string(stack.context_length())};

    std::ofstream out{o.out, std::ios::binary | std::ios::trunc};
    if (!out) throw base::StartError{base::ExitCode::io, o.out + ": cannot be written: " + std::strerror(errno)};
    model::StepDriver driver = stack.driver(1, count);
    for (std::int32_t at = 0; at < count; at += chunk) {
        const std::vector<std::int32_t> part(tokens.begin() + at,
                                             tokens.begin() + std::min(at + chunk, count));
        driver.step({&part, 1}, true);
        const auto& rows = driver.logits();
        out.write(reinterpret_cast<const char*>(rows.data()),
                  static_cast<std::streamsize>(rows.size() * sizeof(float)));
    }
    out.flush();
    if (!out) throw base::StartError{base::ExitCode::io, o.out + ": writing failed"};
    std::printf("%d x %lld logits written to %s\n", count, static_cast<long long>(vocab), o.out.c_str());
}

}  // namespace

void add_logits(CLI::App& cli) {
    auto* command = cli.add_subcommand("logits", "Write the logits of every position of a token sequence");
    command->footer(
        "Reads 32-bit little-endian token ids and writes float32 rows [tokens, vocabulary], without "
        "template, sampling or server: the raw view for comparing backends and implementations.\n"
        "Example: assayctl logits -m model.gguf --tokens prompt.i32 --out logits.f32 --backends reference");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("--tokens", o->tokens, "File of 32-bit token ids")->required()->check(CLI::ExistingFile);
    command->add_option("--out", o->out, "File to write")->required();
    command->add_option("--chunk", o->chunk, "Tokens per step; 0 = all at once, 1 = token by token")
        ->check(at_least(0));
    command->callback([o] { run(*o); });
}

}  // namespace app::cli
