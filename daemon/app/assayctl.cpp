// assayctl: the command-line companion of assayd.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>

#include "daemon/app/cli/commands.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/probe.hpp"

namespace {

int report(const base::StartError& e) {
    std::fprintf(stderr, "assayctl: %s\n", e.what());
    return static_cast<int>(e.code());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--probe-plugin") == 0) return plugin::probe_main(argv[2]);

    CLI::App cli{"assayctl: inspect, prove and drive models with the plugins that assayd serves them with"};
    cli.require_subcommand(1);
    cli.set_version_flag("--version", "assayctl " ASSAY_VERSION);
    cli.footer("Exit codes: 64 usage, 65 bad model file, 70 a backend or proof failed, 78 configuration or a "
               "missing backend.\n'assayctl COMMAND --help' explains each command.");
    app::cli::add_inspect(cli);
    app::cli::add_audit(cli);
    app::cli::add_merge(cli);
    app::cli::add_split(cli);
    app::cli::add_support(cli);
    app::cli::add_complete(cli);
    app::cli::add_logits(cli);
    app::cli::add_bench(cli);
    try {
        cli.parse(argc, argv);
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
