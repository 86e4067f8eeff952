#include "daemon/app/serve.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "daemon/app/logging.hpp"
#include "daemon/app/model_watch.hpp"
#include "daemon/app/plugin_metrics.hpp"
#include "daemon/app/proof.hpp"
#include "daemon/app/server_options.hpp"
#include "daemon/app/signals.hpp"
#include "daemon/app/stack.hpp"
#include "daemon/app/text_codec.hpp"
#include "daemon/base/engine_link.hpp"
#include "daemon/base/error.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/engine/engine.hpp"
#include "daemon/engine/sampler.hpp"
#include "daemon/metrics/feeds.hpp"
#include "daemon/metrics/registry.hpp"
#include "daemon/server/server.hpp"
#include "daemon/text/chat_template.hpp"

namespace app {
namespace {

using Phase = base::ServiceState::Phase;

engine::SchedulerLimits scheduler_limits(const config::Config& config, const Stack& stack) {
    engine::SchedulerLimits limits;
    limits.max_num_seqs = stack.runner->limits().max_seqs;
    limits.max_num_batched_tokens = stack.runner->limits().max_tokens;
    limits.max_logit_rows = stack.runner->limits().max_logit_rows;
    limits.max_waiting = config.scheduler.max_waiting;
    limits.queue_timeout = config.scheduler.queue_timeout;
    limits.block_size = stack.cache->block_size();
    limits.context_length = stack.context_length();
    limits.prefix_cache = config.scheduler.prefix_cache;
    return limits;
}

/// The io thread, stopped and joined however the start ends.
class IoThread {
public:
    explicit IoThread(server::Server& server) : server_{server}, thread_{[&server] { server.run(); }} {}
    ~IoThread() {
        if (!thread_.joinable()) return;
        server_.stop();
        thread_.join();
    }
    /// Until the server was drained or stopped.
    void join() { thread_.join(); }

private:
    server::Server& server_;
    std::thread thread_;
};

/// What serves once the model is up.
class Service {
public:
    /// @param on_failure  called on the engine thread when a backend failed, before anybody is told
    Service(const config::Config& config, Stack& stack, base::EngineLink& link, metrics::Registry& registry,
            std::function<void(const std::string&)> on_failure)
        : link_{link},
          feeds_{registry},
          sampler_{*stack.resolution.device, *stack.stream, stack.runner->limits().max_seqs,
                   stack.runner->limits().max_logit_rows, static_cast<std::int32_t>(stack.hparams().vocab_size)},
          engine_{scheduler_limits(config, stack), *stack.runner, sampler_, stack.cache->num_blocks(), link, feeds_},
          thread_{[this, on_failure = std::move(on_failure)] {
              const std::string failure = engine_.run(on_failure);
              if (!failure.empty()) engine_.refuse_until_stopped(failure);
          }} {}
    ~Service() {
        link_.stop();
        thread_.join();
    }

private:
    base::EngineLink& link_;
    metrics::Engine feeds_;
    engine::Sampler sampler_;
    engine::Engine engine_;
    std::thread thread_;
};

void log_lines(const std::string& text) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        if (end > begin) log_info(text.substr(begin, end - begin));
        begin = end + 1;
    }
}

/// Ends the process from a thread that is not main: what was begun is cut, and nobody waits for a device.
[[noreturn]] void exit_now(base::ExitCode code) {
    log_info("event=exit code=" + std::to_string(static_cast<int>(code)));
    flush_log();
    std::_Exit(static_cast<int>(code));
}

/// What the daemon does while it lives, besides answering: signals, and a look around every second.
class Operation {
public:
    Operation(const config::Config& config, server::Server& server, base::ServiceState& state,
              metrics::Registry& registry)
        : config_{config}, server_{server}, state_{state}, registry_{registry} {}

    Signals::Handlers handlers() {
        return {.leave = [this](const char* signal) { leave(signal); },
                .leave_now = [this](const char* signal) { leave_now(signal); },
                .hang_up = [] {
                    reopen_logs();
                    log_warn("event=signal signal=SIGHUP detail=\"log files opened anew; a changed configuration "
                             "needs a restart\"");
                },
                .tick = [this] { tick(); }};
    }

    /// Files that are served from now on.
    void watch(const std::vector<std::string>& model_files) {
        const std::lock_guard lock{mutex_};
        watch_ = ModelWatch{model_files};
    }

    /// Thread: engine. The daemon answers what it still can, and ends: its supervisor starts another.
    void on_engine_failure(const std::string& why) {
        log_error("event=engine_failed detail=\"" + why + "\"");
        has_failed_ = true;
        state_.set(Phase::failed, "engine: " + why);
        server_.drain(config_.server.drain_timeout);
    }
    [[nodiscard]] bool has_failed() const { return has_failed_; }

private:
    void leave(const char* signal) {
        log_info(std::string{"event=drain signal="} + signal);
        // Nothing has begun yet: there is nothing to finish, and loading may take minutes.
        if (state_.advance(Phase::starting, Phase::draining, "stopped before it was ready"))
            exit_now(base::ExitCode::ok);
        server_.drain(config_.server.drain_timeout);
    }

    void leave_now(const char* signal) {
        const double live = registry_.gauge(metrics::Family::requests_running).value() +
                            registry_.gauge(metrics::Family::requests_waiting).value();
        log_warn(std::string{"event=stop signal="} + signal + " cut=" + std::to_string(static_cast<long>(live)) +
                 " detail=\"a second signal: what runs is cut\"");
        exit_now(base::ExitCode::cut);
    }

    void tick() {
        const DroppedLines now = dropped_lines();
        const auto count = [&](std::size_t log, std::uint64_t total, std::uint64_t& seen) {
            registry_.counter(metrics::Family::log_lines_dropped_total, {log}).add(static_cast<std::int64_t>(total - seen));
            seen = total;
        };
        count(0, now.log, dropped_.log);
        count(1, now.access, dropped_.access);
        const std::lock_guard lock{mutex_};
        const std::string change = watch_.change();
        if (change.empty()) return;
        watch_ = {};  // once is enough
        log_error("event=model_changed detail=\"" + change + " while it is served: what it says can no longer be "
                  "trusted; restart, and replace model files with mv\"");
        state_.set(Phase::failed, "model file: " + change + " while it is served; restart");
    }

    const config::Config& config_;
    server::Server& server_;
    base::ServiceState& state_;
    metrics::Registry& registry_;
    std::atomic<bool> has_failed_{false};
    DroppedLines dropped_;
    std::mutex mutex_;
    ModelWatch watch_;  // guarded by mutex_
};

/// Why the daemon ends, for its supervisor.
int exit_code(const Operation& operation, const server::Server& server) {
    const std::size_t cut = server.num_cut();
    const base::ExitCode code = operation.has_failed() ? base::ExitCode::assay
                                : cut > 0              ? base::ExitCode::cut
                                                       : base::ExitCode::ok;
    log_info("event=exit code=" + std::to_string(static_cast<int>(code)) + " cut=" + std::to_string(cut));
    return static_cast<int>(code);
}

text::TemplateWorkerOptions worker_options(const config::Config& config) {
    text::TemplateWorkerOptions options;
    options.deadline = config.chat_template.timeout;
    options.memory_bytes = static_cast<std::size_t>(config.chat_template.memory_bytes);
    options.num_workers = static_cast<std::size_t>(config.chat_template.workers);
    return options;
}

}  // namespace

int serve(const config::Config& config) {
    set_up_log(config.log);
    raise_open_files_limit(config.server);
    plugin::LogQueue plugin_log{plugin_log_sink()};
    metrics::Registry registry;
    registry.export_vllm_aliases(config.metrics.vllm_aliases);
    PluginMetrics plugin_metrics{registry};
    metrics::Process process{registry};
    process.set_build(ASSAY_VERSION, "");
    base::ServiceState state;
    base::EngineLink link{static_cast<std::size_t>(config.scheduler.max_waiting)};

    // Listen first: /healthz answers and /readyz says what is being waited for.
    Proof proof{registry, state};
    server::Server server{server_options(config), link, state, registry};
    Operation operation{config, server, state, registry};
    const Signals signals{operation.handlers()};
    IoThread io{server};
    log_info("event=listening address=" + config.server.listen.host + " port=" + std::to_string(server.port()) +
             (config.tls.certificate.empty() ? "" : " tls=yes"));

    StackOptions options;
    options.services.log = &plugin_log;
    options.services.metrics = &plugin_metrics;
    options.on_stage = [&](const std::string& line) {
        log_info("event=start stage=\"" + line + "\"");
        state.advance(Phase::starting, Phase::starting, line);
    };
    options.on_files = [&](const std::vector<std::string>& files) {
        explain_bus_errors(files, log_descriptor());
        operation.watch(files);
    };
    const auto begin = std::chrono::steady_clock::now();
    Stack stack{config, options};
    log_lines(stack.plan_text());
    for (const std::string& line : stack.warnings()) log_warn(line);
    process.load_bytes.add(static_cast<std::int64_t>(stack.weights->total_bytes()));
    process.load_seconds.set(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());

    text::TemplateWorker worker{worker_options(config)};
    if (!worker.unavailable_reason().empty())
        log_warn("event=templates_unavailable detail=\"" + worker.unavailable_reason() + "\"");

    server::ModelCard card;
    card.id = served_name(config, stack.file->metadata());
    card.created = std::time(nullptr);
    card.context_length = stack.context_length();
    card.fingerprint = "fp_" + stack.resolution.plan.hash();
    registry.set_model(card.id);
    server.set_model(card, make_text_codec(*stack.tokenizer, stack.file->metadata(),
                                           config.model.chat_template_file, &worker, [](std::string_view detail) {
                                               log_warn("event=chat_template detail=\"" + std::string{detail} + "\"");
                                           }));
    proof.run(config, stack);
    const Service service{config, stack, link, registry,
                          [&](const std::string& why) { operation.on_engine_failure(why); }};
    if (state.advance(Phase::starting, Phase::ready, "ready"))
        log_info("event=ready model=" + card.id + " fingerprint=" + card.fingerprint);
    io.join();
    const int code = exit_code(operation, server);
    flush_log();
    return code;
}

void check(const config::Config& config) {
    std::printf("%s\n", config::describe(config).c_str());
    server::check_listener(server_options(config));
    check_log(config.log);
    StackOptions options;
    options.depth = Depth::resolve;
    const Stack stack{config, options};
    text::TemplateWorker worker{worker_options(config)};
    static_cast<void>(make_text_codec(*stack.tokenizer, stack.file->metadata(), config.model.chat_template_file, &worker));
    std::printf("# plan %s\n%s", stack.resolution.plan.hash().c_str(), stack.plan_text().c_str());
    for (const std::string& line : stack.warnings()) std::printf("# warning: %s\n", line.c_str());
    if (!worker.unavailable_reason().empty())
        std::printf("# warning: chat templates cannot be rendered: %s\n", worker.unavailable_reason().c_str());
}

}  // namespace app
