// assayd: serves one model, once its backends are resolved and proven.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "daemon/app/serve.hpp"
#include "daemon/app/signals.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/environment.hpp"
#include "daemon/plugin/probe.hpp"

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--probe-plugin") == 0) return plugin::probe_main(argv[2]);

    ::signal(SIGPIPE, SIG_IGN);  // NOLINT: a peer that left is an error code of the write

    CLI::App cli{"assayd: a serving daemon for GGUF language models that proves its backends before it serves"};
    std::string config_file;
    bool check = false;
    cli.add_option("-c,--config", config_file, "Configuration file (TOML)")->required();
    cli.add_flag("--check", check, "Resolve and audit everything, print the effective configuration and the "
                                   "plan, do not serve");
    cli.set_version_flag("--version", "assayd " ASSAY_VERSION);
    cli.footer("Exit codes: 0 drained, 64 usage, 65 bad model file, 70 a proof or a backend failed, 75 ended before "
               "everything was answered, 78 configuration or a missing backend.\n"
               "SIGTERM, SIGINT and SIGQUIT drain and exit, a second one exits at once; SIGHUP opens log files anew.");
    try {
        cli.parse(argc, argv);
        const config::Config config = config::load(config_file, config::Environment::of_process());
        if (check) {
            app::check(config);
            return 0;
        }
        // Before any thread exists, so that all inherit it: signals are waited for, never handled. Not for
        // --check, where nobody waits.
        app::Signals::block();
        return app::serve(config);
    } catch (const CLI::Success& e) {
        return cli.exit(e);
    } catch (const CLI::ParseError& e) {
        cli.exit(e);
        return static_cast<int>(base::ExitCode::usage);
    } catch (const base::StartError& e) {
        std::fprintf(stderr, "assayd: %s\n", e.what());
        return static_cast<int>(e.code());
    } catch (const std::exception& e) {
        std::fprintf(stderr, "assayd: %s\n", e.what());
        return static_cast<int>(base::ExitCode::assay);
    }
}
