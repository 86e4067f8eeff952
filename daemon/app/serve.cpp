#include "daemon/app/serve.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "daemon/app/logging.hpp"
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

/// One key a line; a line is `secret` or `label secret`. Blank lines and lines that begin with # are
/// skipped. Throws base::ConfigError naming file and line; never shows a secret.
std::vector<server::ApiKey> read_api_keys(const std::filesystem::path& path) {
    std::ifstream in{path};
    if (!in) throw base::ConfigError{"server.api_keys_file: " + path.string() + " cannot be read"};
    std::vector<server::ApiKey> keys;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        std::istringstream words{line};
        std::vector<std::string> found{std::istream_iterator<std::string>{words}, {}};
        if (found.empty() || found.front().front() == '#') continue;
        if (found.size() > 2)
            throw base::ConfigError{path.string() + ":" + std::to_string(number) +
                                    ": expected a key, or a label and a key, found " +
                                    std::to_string(found.size()) + " words"};
        keys.push_back({found.size() == 2 ? found.front() : "key-" + std::to_string(number), found.back()});
    }
    if (keys.empty()) throw base::ConfigError{"server.api_keys_file: " + path.string() + " holds no key"};
    return keys;
}

server::Options server_options(const config::Config& config) {
    server::Options o;
    o.address = config.server.listen.host;
    o.port = config.server.listen.port;
    o.allowed_origins = config.server.allowed_origins;
    o.limits.max_connections = static_cast<std::size_t>(config.server.max_connections);
    o.limits.max_head_bytes = static_cast<std::size_t>(config.server.max_head_bytes);
    o.limits.max_body_bytes =
        static_cast<std::size_t>(std::max(config.server.max_body_bytes, config.server.max_frame_bytes));
    o.limits.head_timeout = config.server.read_timeout;
    o.limits.body_timeout = config.server.read_timeout;
    o.limits.send_budget_bytes = static_cast<std::size_t>(config.server.send_budget_bytes);
    o.limits.send_high_bytes = std::min(o.limits.send_high_bytes, o.limits.send_budget_bytes / 4);
    o.limits.pause_timeout = config.server.pause_timeout;
    o.limits.request_timeout = config.server.request_timeout;
    o.limits.max_store_bytes = static_cast<std::size_t>(config.server.store_bytes);
    o.limits.max_store_age = config.server.store_age;
    o.limits.default_max_output_tokens = config.sampling.max_tokens;
    // One more than can render at once, so that what needs no template does not wait for those that do.
    o.helper.num_threads = static_cast<std::size_t>(config.chat_template.workers) + 1;
    o.sampling.temperature = static_cast<float>(config.sampling.temperature);
    o.sampling.top_p = static_cast<float>(config.sampling.top_p);
    o.sampling.top_k = config.sampling.top_k;
    o.sampling.min_p = static_cast<float>(config.sampling.min_p);
    if (!config.server.api_keys_file.empty()) o.api_keys = read_api_keys(config.server.api_keys_file);
    o.metrics = config.metrics.enabled;
    o.on_problem = [](std::string_view line) { log_warn(line); };
    return o;
}

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

/// Waits for signals on its own thread. SIGTERM and SIGINT drain, and the second one does not wait for
/// anybody; SIGHUP, which also comes when a terminal closes, ends nothing.
class Signals {
public:
    Signals(server::Server& server, std::chrono::milliseconds drain_timeout)
        : thread_{[this, &server, drain_timeout] { run(server, drain_timeout); }} {}
    ~Signals() {
        // Wakes the thread; a signal that nobody sent would end the process otherwise.
        stopping_ = true;
        ::pthread_kill(thread_.native_handle(), SIGTERM);
        thread_.join();
    }

private:
    void run(server::Server& server, std::chrono::milliseconds drain_timeout) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        for (int count = 0;;) {
            int signal = 0;
            if (::sigwait(&set, &signal) != 0 || stopping_) return;
            if (signal == SIGHUP) {
                log_warn("event=signal signal=SIGHUP detail=\"ignored: a changed configuration needs a restart\"");
                continue;
            }
            if (++count == 1) {
                log_info(std::string{"event=drain signal="} + (signal == SIGTERM ? "SIGTERM" : "SIGINT"));
                server.drain(drain_timeout);
            } else {
                log_warn("event=stop reason=\"second signal\"");
                server.stop();
            }
        }
    }

    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

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
    Service(const config::Config& config, Stack& stack, base::EngineLink& link, base::ServiceState& state,
            metrics::Registry& registry)
        : link_{link},
          feeds_{registry},
          sampler_{*stack.resolution.device, *stack.stream, stack.runner->limits().max_seqs,
                   stack.runner->limits().max_logit_rows, static_cast<std::int32_t>(stack.hparams().vocab_size)},
          engine_{scheduler_limits(config, stack), *stack.runner, sampler_, stack.cache->num_blocks(), link, feeds_},
          thread_{[this, &state] {
              const std::string failure = engine_.run();
              if (failure.empty()) return;
              log_error("event=engine_failed detail=\"" + failure + "\"");
              state.set(Phase::failed, "engine: " + failure);
              engine_.refuse_until_stopped(failure);
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

}  // namespace

int serve(const config::Config& config) {
    set_up_log(config.log);
    plugin::LogQueue plugin_log{plugin_log_sink()};
    metrics::Registry registry;
    registry.export_vllm_aliases(config.metrics.vllm_aliases);
    metrics::Process process{registry};
    process.set_build(ASSAY_VERSION, "");
    base::ServiceState state;
    base::EngineLink link{static_cast<std::size_t>(config.scheduler.max_waiting)};

    // Listen first: /healthz answers and /readyz says what is being waited for.
    server::Server server{server_options(config), link, state, registry};
    Signals signals{server, config.server.drain_timeout};
    IoThread io{server};
    log_info("event=listening address=" + config.server.listen.host + " port=" + std::to_string(server.port()));

    StackOptions options;
    options.services.log = &plugin_log;
    options.on_stage = [&](const std::string& line) {
        log_info("event=start stage=\"" + line + "\"");
        state.advance(Phase::starting, Phase::starting, line);
    };
    const auto begin = std::chrono::steady_clock::now();
    Stack stack{config, options};
    log_lines(stack.plan_text());
    process.load_bytes.add(static_cast<std::int64_t>(stack.weights->total_bytes()));
    process.load_seconds.set(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());

    text::TemplateWorkerOptions worker_options;
    worker_options.deadline = config.chat_template.timeout;
    worker_options.memory_bytes = static_cast<std::size_t>(config.chat_template.memory_bytes);
    worker_options.num_workers = static_cast<std::size_t>(config.chat_template.workers);
    text::TemplateWorker worker{worker_options};
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
    const Service service{config, stack, link, state, registry};
    if (state.advance(Phase::starting, Phase::ready, "ready")) {
        process.ready.set(1);
        log_info("event=ready model=" + card.id + " fingerprint=" + card.fingerprint);
    }
    io.join();
    log_info("event=exit");
    flush_log();
    return 0;
}

void check(const config::Config& config) {
    std::printf("%s\n", config::describe(config).c_str());
    StackOptions options;
    options.depth = Depth::resolve;
    const Stack stack{config, options};
    std::printf("# plan %s\n%s", stack.resolution.plan.hash().c_str(), stack.plan_text().c_str());
}

}  // namespace app
