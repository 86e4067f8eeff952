// assayctl bench: prefill and decode speed beside what the memory allows.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "cxx/plugin.hpp"
#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/cli/validators.hpp"
#include "daemon/model/step_driver.hpp"
#include "daemon/base/error.hpp"

namespace app::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    ModelOptions model;
    int prompt = 512, generate = 128, repeat = 3;
    std::vector<int> batch{1};
    bool json = false;
};

struct Figures {
    int batch = 1;
    double prefill_tok_s = 0, decode_tok_s = 0;
    double decode_gb_s = 0;      ///< bytes of weights and cache that the decode steps read
    double share_of_bandwidth = 0;
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Read bandwidth of host memory with all lanes, GB/s: sums over a buffer far larger than the caches.
double read_bandwidth(const plugin::WorkerLanes& lanes) {
    constexpr std::size_t kBytes = std::size_t{512} << 20U;
    constexpr std::uint32_t kParts = 64;
    const std::vector<std::uint64_t> data(kBytes / 8, 1);
    std::vector<std::uint64_t> sums(kParts, 0);
    std::vector<double> rates;
    for (int run = 0; run < 5; ++run) {
        const auto begin = Clock::now();
        sdk::parallel_for(lanes.abi(), kParts, [&](std::uint32_t part, std::uint32_t) {
            const std::size_t n = data.size() / kParts;
            const std::uint64_t* p = data.data() + part * n;
            std::uint64_t a = 0, b = 0, c = 0, d = 0;
            for (std::size_t i = 0; i + 4 <= n; i += 4) {
                a += p[i];
                b += p[i + 1];
                c += p[i + 2];
                d += p[i + 3];
            }
            sums[part] += a + b + c + d;
        });
        rates.push_back(static_cast<double>(kBytes) / seconds_since(begin) / 1e9);
    }
    if (sums[0] == 0) rates.clear();  // keeps the sums alive
    return median(rates);
}

/// Bandwidth of a device's own memory, GB/s: bytes read and bytes written by copies far larger than its cache.
/// 0 where the memory does not suffice for two such buffers.
double copy_bandwidth(const Stack& stack) {
    constexpr std::uint64_t kBytes = std::uint64_t{1} << 30U;
    constexpr int kCopies = 10;
    const plugin::Device& device = *stack.resolution.device;
    std::uint64_t free = 0, total = 0;
    if (device.api().memory(device.self(), &free, &total) != ASSAY_OK || free < 3 * kBytes) return 0;
    const plugin::Buffer from = device.alloc(kBytes), to = device.alloc(kBytes);
    std::vector<double> rates;
    for (int run = 0; run < 5; ++run) {
        stack.stream->sync();
        const auto begin = Clock::now();
        for (int i = 0; i < kCopies; ++i) device.copy(to.data(), from.data(), kBytes, *stack.stream);
        stack.stream->sync();
        rates.push_back(2.0 * kCopies * static_cast<double>(kBytes) / seconds_since(begin) / 1e9);
    }
    return median(rates);
}

/// Bytes of KV that one decode step reads for one sequence of `length` tokens.
double kv_bytes(const Stack& stack, double length) {
    double bytes = 0;
    for (std::int64_t l = 0; l < stack.hparams().num_layers; ++l) {
        const assay_kv_layout& layout = stack.cache->layout(l);
        for (std::uint32_t p = 0; p < layout.num_planes; ++p) {
            // A sparse layer reads the chosen tokens of its latent, and all of its index keys.
            const bool sparse = stack.hparams().index_topk > 0 && std::string_view{layout.planes[p].name} == "latent";
            const double tokens = sparse ? std::min(length, static_cast<double>(stack.hparams().index_topk)) : length;
            bytes += tokens * static_cast<double>(layout.planes[p].bytes_per_token);
        }
    }
    return bytes;
}

Figures measure(Stack& stack, const Options& o, int batch, double bandwidth) {
    model::StepDriver driver = stack.driver(batch, o.prompt + o.generate);
    const auto vocab = static_cast<std::int32_t>(stack.hparams().vocab_size);
    const std::int32_t chunk = stack.runner->limits().max_tokens;
    std::vector<double> prefill, decode;
    for (int run = 0; run < o.repeat; ++run) {
        driver.reset();
        auto begin = Clock::now();
        for (int s = 0; s < batch; ++s) {
            for (int at = 0; at < o.prompt; at += chunk) {
                std::vector<std::vector<std::int32_t>> tokens(static_cast<std::size_t>(batch));
                for (int i = at; i < std::min(at + chunk, o.prompt); ++i)
                    tokens[static_cast<std::size_t>(s)].push_back((i * 7919 + s * 104729 + 17) % vocab);
                driver.step(tokens, false);
            }
        }
        prefill.push_back(batch * o.prompt / seconds_since(begin));
        begin = Clock::now();
        for (int i = 0; i < o.generate; ++i) {
            std::vector<std::vector<std::int32_t>> tokens(static_cast<std::size_t>(batch));
            for (int s = 0; s < batch; ++s) tokens[static_cast<std::size_t>(s)] = {(i * 6101 + s * 389 + 5) % vocab};
            driver.step(tokens, false);
        }
        decode.push_back(batch * o.generate / seconds_since(begin));
    }
    Figures f;
    f.batch = batch;
    f.prefill_tok_s = median(prefill);
    f.decode_tok_s = median(decode);
    const double per_step = static_cast<double>(stack.weights->active_bytes()) +
                            batch * kv_bytes(stack, o.prompt + o.generate / 2.0);
    f.decode_gb_s = per_step * f.decode_tok_s / batch / 1e9;
    f.share_of_bandwidth = bandwidth > 0 ? f.decode_gb_s / bandwidth : 0;
    return f;
}

void run(const Options& o) {
    const config::Config config = o.model.to_config();
    const int widest = *std::max_element(o.batch.begin(), o.batch.end());
    StackOptions options;
    options.max_seqs = widest;
    options.max_tokens = std::max(widest, std::min(512, o.prompt));
    options.min_kv_tokens = static_cast<std::int64_t>(widest) * (o.prompt + o.generate + config.kv.block_size);
    StartDisplay display;
    display.attach(options);
    Stack stack{config, options};
    display.done();
    if (o.prompt + o.generate > stack.context_length())
        throw base::StartError{base::ExitCode::usage,
                               "--prompt and --generate: " + std::to_string(o.prompt + o.generate) +
                                   " tokens, the model's context holds " + std::to_string(stack.context_length())};
    const bool is_host = stack.resolution.device->host_visible();
    const double bandwidth = is_host ? read_bandwidth(*stack.lanes) : copy_bandwidth(stack);

    boost::json::array rows;
    if (!o.json) {
        std::printf("%s%d prompt and %d generated tokens, median of %d runs\n",
                    stack.plan_text().c_str(), o.prompt, o.generate, o.repeat);
        if (bandwidth > 0 && is_host)
            std::printf("memory read bandwidth %.1f GB/s with %u lanes\n", bandwidth, stack.lanes->width());
        if (bandwidth > 0 && !is_host) std::printf("copy bandwidth of the device's memory %.1f GB/s\n", bandwidth);
        std::printf("\n%6s %16s %16s %12s %8s\n", "batch", "prefill tok/s", "decode tok/s", "GB/s read", "of limit");
    }
    for (const int batch : o.batch) {
        const Figures f = measure(stack, o, batch, bandwidth);
        if (!o.json)
            std::printf("%6d %16.1f %16.1f %12.2f %7.0f%%\n", f.batch, f.prefill_tok_s, f.decode_tok_s, f.decode_gb_s,
                        100 * f.share_of_bandwidth);
        rows.push_back({{"batch", f.batch}, {"prefill_tok_s", f.prefill_tok_s}, {"decode_tok_s", f.decode_tok_s},
                        {"decode_gb_s", f.decode_gb_s}, {"share_of_bandwidth", f.share_of_bandwidth}});
    }
    if (o.json) {
        const boost::json::object result{{"model", stack.file->path()},
                                         {"plan", stack.resolution.plan.hash()},
                                         {"device", stack.resolution.plan.device_name},
                                         {"prompt", o.prompt},
                                         {"generate", o.generate},
                                         {"repeat", o.repeat},
                                         {"read_bandwidth_gb_s", bandwidth},
                                         {"active_weight_bytes", stack.weights->active_bytes()},
                                         {"results", rows}};
        std::printf("%s\n", boost::json::serialize(result).c_str());
    }
}

}  // namespace

void add_bench(CLI::App& cli) {
    auto* command = cli.add_subcommand("bench", "Measure prefill and decode speed, beside the memory's own");
    command->footer(
        "Decode reads every active weight once a step, so its limit is the memory's read bandwidth; the last "
        "column is the share of it that was reached. Needs no readiness: nothing is proven here.\n"
        "Example: assayctl bench -m model.gguf --prompt 512 --generate 128 --batch 1,8");
    auto o = std::make_shared<Options>();
    o->model.add_to(*command);
    command->add_option("--prompt", o->prompt, "Tokens of each prompt")->check(at_least(1));
    command->add_option("--generate", o->generate, "Decode steps")->check(at_least(1));
    command->add_option("--batch", o->batch, "Sequences at once; several, separated by commas")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    command->add_option("--repeat", o->repeat, "Runs; the median is shown")->check(at_least(1));
    command->add_flag("--json", o->json, "Print JSON");
    command->callback([o] { run(*o); });
}

}  // namespace app::cli
