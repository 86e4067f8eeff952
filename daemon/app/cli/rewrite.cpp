// assayctl merge and split: the parts of a model and the whole, tensor for tensor the same bytes.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cxx/plugin.hpp"
#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/cli/validators.hpp"
#include "daemon/base/error.hpp"
#include "plugins/loader/gguf/rewrite.hpp"

namespace app::cli {
namespace {

/// Runs `body`; what the GGUF library throws becomes an error of this program.
template <class Body>
void rewrite(Body&& body) {
    try {
        body();
    } catch (const sdk::Error& e) {
        throw base::StartError{e.code() == ASSAY_INVALID ? base::ExitCode::usage : base::ExitCode::bad_model, e.what()};
    }
}

struct MergeOptions {
    std::string out;
    std::vector<std::string> parts;
};

void merge(const MergeOptions& o) {
    rewrite([&] {
        ProgressLine progress{o.out};
        gguf::merge(o.out, o.parts, [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); });
    });
    std::printf("%s\n", o.out.c_str());
}

struct SplitOptions {
    std::string file, prefix;
    gguf::SplitRule rule;
};

void split(const SplitOptions& o) {
    constexpr std::string_view kEnding = ".gguf";
    std::string prefix = o.prefix.empty() ? o.file : o.prefix;
    if (prefix.ends_with(kEnding)) prefix.resize(prefix.size() - kEnding.size());
    rewrite([&] {
        std::vector<std::string> paths;
        {
            ProgressLine progress{o.file};
            paths = gguf::split(o.file, prefix, o.rule,
                                [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); });
        }
        for (const std::string& path : paths) std::printf("%s\n", path.c_str());
    });
}

}  // namespace

void add_merge(CLI::App& cli) {
    auto* command = cli.add_subcommand("merge", "Write the parts of a GGUF model as one file");
    command->footer(
        "With one part, the others are found beside it; otherwise all of them are named, in any order. OUT appears "
        "when it is whole, and never replaces a file.\n"
        "Example: assayctl merge model.gguf model-00001-of-00005.gguf");
    auto o = std::make_shared<MergeOptions>();
    command->add_option("out", o->out, "File to write; must not exist")->required();
    command->add_option("part", o->parts, "One part, or all parts")->required();
    command->callback([o] { merge(*o); });
}

void add_split(CLI::App& cli) {
    auto* command = cli.add_subcommand("split", "Cut a GGUF model between tensors into several files");
    command->footer(
        "Writes PREFIX-00001-of-0000N.gguf and so on. Merging them gives the same file again.\n"
        "Example: assayctl split model.gguf --max-bytes 40G");
    auto o = std::make_shared<SplitOptions>();
    command->add_option("file", o->file, "Model file; of a split model, any part")->required();
    command->add_option("--prefix", o->prefix, "What the names of the parts begin with (default: the file's name)");
    auto* parts = command->add_option("--parts", o->rule.num_parts, "Number of parts, about equal in bytes")
                      ->check(at_least(1));
    command->add_option("--max-bytes", o->rule.max_bytes, "Largest size of a part: 40G, 500M, or bytes")
        ->transform(CLI::AsSizeValue(false))
        ->check(at_least(1))
        ->excludes(parts);
    command->callback([o] { split(*o); });
}

}  // namespace app::cli
