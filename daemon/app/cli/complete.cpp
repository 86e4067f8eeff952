// assayctl complete: a text goes on, from a model file in this process or from a running daemon.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <thread>

#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/cli/http_client.hpp"
#include "daemon/app/cli/validators.hpp"
#include "daemon/base/engine_link.hpp"
#include "daemon/base/error.hpp"
#include "daemon/engine/engine.hpp"
#include "daemon/engine/sampler.hpp"
#include "daemon/metrics/feeds.hpp"
#include "daemon/metrics/registry.hpp"
#include "daemon/text/detokenizer.hpp"

#include <boost/json.hpp>

namespace app::cli {
namespace {

struct Options {
    ModelOptions model;
    std::string url, key, prompt;
    int max_tokens = 128, top_k = 0;
    float temperature = 0.0F, top_p = 1.0F, min_p = 0.0F;
    std::uint64_t seed = 0;
    bool ignore_eos = false;
};

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

base::Request make_request(const Options& o, const text::Tokenizer& tokenizer) {
    auto prompt = tokenizer.encode(o.prompt, {.add_special = true, .parse_special = true});
    if (!prompt) throw base::StartError{base::ExitCode::usage, "prompt: " + prompt.error().message()};
    if (prompt->empty()) throw base::StartError{base::ExitCode::usage, "prompt: has no token"};
    base::Request request;
    request.id = base::RequestId{1};
    request.prompt = std::move(*prompt);
    request.max_tokens = o.max_tokens;
    request.sampling.temperature = o.temperature;
    request.sampling.top_k = o.top_k;
    request.sampling.top_p = o.top_p;
    request.sampling.min_p = o.min_p;
    request.sampling.seed = o.seed != 0 ? o.seed : std::random_device{}();
    if (!o.ignore_eos) request.stop_tokens = tokenizer.eog_ids();
    request.received = base::Clock::now();
    return request;
}

/// Prints the tokens of the one request until it ends.
void follow(base::EngineLink& link, const text::Tokenizer& tokenizer) {
    text::Detokenizer detokenizer{tokenizer};
    std::vector<base::TokenEvent> events;
    for (;;) {
        events.clear();
        link.drain_events(events);
        for (const base::TokenEvent& event : events) {
            if (event.kind == base::TokenEvent::Kind::token && event.finish != base::FinishReason::stop)
                print(detokenizer.push(event.token));
            if (event.finish == base::FinishReason::none) continue;
            print(detokenizer.flush() + "\n");
            if (event.finish == base::FinishReason::error)
                throw base::AssayError{base::make_error_code(event.error).message() +
                                       (event.detail.empty() ? "" : ": " + event.detail)};
            return;
        }
        if (events.empty()) std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
}

void run_here(const Options& o) {
    config::Config config = o.model.to_config();
    StackOptions options;
    options.max_seqs = 1;
    StartDisplay display;
    display.attach(options);
    Stack stack{config, options};
    display.done();
    base::Request request = make_request(o, *stack.tokenizer);

    metrics::Registry registry;
    metrics::Engine feeds{registry};
    base::EngineLink link{4};
    engine::Sampler sampler{*stack.resolution.device, *stack.stream, 1, stack.runner->limits().max_logit_rows,
                            static_cast<std::int32_t>(stack.hparams().vocab_size)};
    engine::SchedulerLimits limits;
    limits.max_num_seqs = 1;
    limits.max_num_batched_tokens = stack.runner->limits().max_tokens;
    limits.max_logit_rows = stack.runner->limits().max_logit_rows;
    limits.block_size = stack.cache->block_size();
    limits.context_length = stack.context_length();
    engine::Engine engine{limits, *stack.runner, sampler, stack.cache->num_blocks(), link, feeds};
    if (!link.submit(request)) throw base::AssayError{"the engine takes no request"};
    std::thread thread{[&engine] { static_cast<void>(engine.run()); }};
    try {
        follow(link, *stack.tokenizer);
    } catch (...) {
        link.stop();
        thread.join();
        throw;
    }
    link.stop();
    thread.join();
}

void run_there(const Options& o) {
    boost::json::object body{{"prompt", o.prompt}, {"max_tokens", o.max_tokens}, {"temperature", o.temperature},
                             {"top_p", o.top_p},   {"top_k", o.top_k},           {"min_p", o.min_p},
                             {"stream", true},     {"ignore_eos", o.ignore_eos}};
    if (o.seed != 0) body["seed"] = o.seed;
    HttpClient client{o.url, o.key};
    body["model"] = client.served_model();
    client.stream("/v1/completions", boost::json::serialize(body), [](const std::string& data) {
        const boost::json::value chunk = boost::json::parse(data);
        if (const auto* error = chunk.as_object().if_contains("error"))
            throw base::AssayError{boost::json::value_to<std::string>(error->at("message"))};
        const auto& choices = chunk.at("choices").as_array();
        if (!choices.empty()) print(boost::json::value_to<std::string>(choices[0].at("text")));
    });
    print("\n");
}

void run(Options o) {
    if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>{std::cin}, {});
    if (!o.url.empty() && (!o.model.model.empty() || !o.model.config.empty()))
        throw base::StartError{base::ExitCode::usage, "--url names a running daemon; --model and --config do not go with it"};
    if (o.url.empty())
        run_here(o);
    else
        run_there(o);
}

}  // namespace

void add_complete(CLI::App& cli) {
    auto* command = cli.add_subcommand("complete", "Continue a text, here (--model) or on a running daemon (--url)");
    command->footer(
        "The prompt is taken as it is: no chat template. Greedy unless --temperature is given.\n"
        "Examples:\n  assayctl complete -m model.gguf \"The capital of France is\"\n"
        "  assayctl complete --url http://127.0.0.1:8080 \"The capital of France is\"");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("prompt", o->prompt, "Text to continue; '-' reads it from standard input")->required();
    command->add_option("--url", o->url, "Address of a running daemon, such as http://127.0.0.1:8080");
    command->add_option("--key", o->key, "API key for --url")->envname("ASSAYCTL_KEY");
    command->add_option("-n,--max-tokens", o->max_tokens, "Tokens to generate at most")->check(at_least(1));
    command->add_option("--temperature", o->temperature, "0 = greedy")->check(CLI::Range(0.0F, 2.0F));
    command->add_option("--top-p", o->top_p, "Nucleus; 1 = off")->check(CLI::Range(0.0F, 1.0F));
    command->add_option("--top-k", o->top_k, "Only the k most likely; 0 = off")->check(at_least(0));
    command->add_option("--min-p", o->min_p, "Only tokens this share as likely as the best; 0 = off")
        ->check(CLI::Range(0.0F, 1.0F));
    command->add_option("--seed", o->seed, "The same seed draws the same text; 0 = any");
    command->add_flag("--ignore-eos", o->ignore_eos, "Go on past the end-of-generation token");
    command->callback([o] { run(*o); });
}

}  // namespace app::cli
