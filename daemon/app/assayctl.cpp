// assayctl: the command-line companion of assayd.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "daemon/app/cli/commands.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/mistakes.hpp"
#include "daemon/plugin/probe.hpp"

namespace {

int report(const base::StartError& e) {
    std::fprintf(stderr, "assayctl: %s\n", e.what());
    return static_cast<int>(e.code());
}

bool is_command(const CLI::App& cli, const std::string& word) {
    const auto commands = cli.get_subcommands({});
    return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* c) { return c->get_name() == word; });
}

/// ", did you mean 'audit'?", or "".
std::string close_command(const CLI::App& cli, const char* word) {
    std::vector<std::string> names;
    for (const CLI::App* command : cli.get_subcommands({})) names.push_back(command->get_name());
    const auto close = config::nearest(word, names);
    return close.empty() ? std::string{} : ", did you mean '" + std::string{close} + "'?";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--probe-plugin") == 0) return plugin::probe_main(argv[2]);

    CLI::App cli{"assayctl: inspect, prove and drive models with the plugins that assayd serves them with"};
    cli.require_subcommand(1);
    cli.set_version_flag("--version", "assayctl " ASSAY_VERSION);
    cli.footer("Exit codes: 64 usage, 65 bad model file, 69 no daemon answers or it refuses, 70 a backend or proof "
               "failed, 74 the result could not be written, 78 configuration or a missing backend.\n'assayctl COMMAND --help' explains each command.");
    app::cli::add_assay(cli);
    app::cli::add_bisect(cli);
    app::cli::add_calibrate(cli);
    app::cli::add_inspect(cli);
    app::cli::add_audit(cli);
    app::cli::add_merge(cli);
    app::cli::add_split(cli);
    app::cli::add_support(cli);
    app::cli::add_complete(cli);
    app::cli::add_logits(cli);
    app::cli::add_bench(cli);
    // CLI11 would only say that a subcommand is required.
    if (argc > 1 && argv[1][0] != '-' && !is_command(cli, argv[1])) {
        std::fprintf(stderr, "assayctl: unknown command '%s'%s; 'assayctl --help' lists the commands\n", argv[1],
                     close_command(cli, argv[1]).c_str());
        return static_cast<int>(base::ExitCode::usage);
    }
    try {
        cli.parse(argc, argv);
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
            throw base::StartError{base::ExitCode::io, "standard output: " + std::string{std::strerror(errno)}};
    } catch (const CLI::Success& e) {
        return cli.exit(e);
    } catch (const CLI::ParseError& e) {
        cli.exit(e);
        return static_cast<int>(base::ExitCode::usage);
    } catch (const base::StartError& e) {
        return report(e);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "assayctl: %s\n", e.what());
        return static_cast<int>(base::ExitCode::assay);
    }
    return 0;
}
