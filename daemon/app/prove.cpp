#include "daemon/app/prove.hpp"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "daemon/app/reference_plan.hpp"
#include "daemon/assay/cache.hpp"
#include "daemon/base/error.hpp"

namespace app {
namespace {

std::string read_file(const std::filesystem::path& path, const char* key) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw base::ConfigError{std::string{key} + ": " + path.string() + " cannot be read"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

std::optional<assay::Calibration> find_calibration(const config::Config& config, std::string& text) {
    const std::filesystem::path path = calibration_path(config);
    std::error_code ec;
    if (config.assay.calibration.empty() && !std::filesystem::exists(path, ec)) return std::nullopt;
    text = read_file(path, "assay.calibration");
    return assay::Calibration::from_json(text, path.string());
}

/// [{"name": "capital", "prompt": "…", "expected": " Paris", "floor": -1.0}, …]
std::vector<assay::Probe> read_probes(const config::Config& config, std::string& text) {
    std::vector<assay::Probe> probes;
    if (config.assay.probes_file.empty()) return probes;
    const std::string file = config.assay.probes_file.string();
    text = read_file(config.assay.probes_file, "assay.probes_file");
    try {
        const boost::json::value list = boost::json::parse(text);
        for (const auto& item : list.as_array()) {
            const auto& o = item.as_object();
            for (const auto& field : o)
                if (field.key() != "name" && field.key() != "prompt" && field.key() != "expected" && field.key() != "floor")
                    throw base::ConfigError{"assay.probes_file: " + file + ": unknown field \"" + std::string{field.key()} + '"'};
            probes.push_back({boost::json::value_to<std::string>(o.at("name")), boost::json::value_to<std::string>(o.at("prompt")),
                              boost::json::value_to<std::string>(o.at("expected")), boost::json::value_to<double>(o.at("floor"))});
        }
    } catch (const base::StartError&) {
        throw;
    } catch (const std::exception& e) {
        throw base::ConfigError{"assay.probes_file: " + file +
                                ": expected a list of {\"name\", \"prompt\", \"expected\", \"floor\"}: " + e.what()};
    }
    return probes;
}

/// Tells what is being run, and when nothing moves any more.
class Watcher {
public:
    Watcher(const assay::Activity& activity, const ProofObserver& observer, std::chrono::milliseconds timeout)
        : thread_{[this, &activity, &observer, timeout] { watch(activity, observer, timeout); }} {}
    ~Watcher() {
        {
            const std::lock_guard lock{mutex_};
            stopping_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

private:
    void watch(const assay::Activity& activity, const ProofObserver& observer, std::chrono::milliseconds timeout) {
        std::unique_lock lock{mutex_};
        while (!wake_.wait_for(lock, std::chrono::milliseconds{200}, [&] { return stopping_; })) {
            const std::string what = activity.what();
            if (what.empty()) continue;
            if (observer.on_stage) observer.on_stage("assay: " + what);
            if (activity.running() <= timeout || !observer.on_hang) continue;
            assay::Check check;
            check.id = std::string{assay::name(activity.level())} + ".hang";
            check.level = activity.level();
            check.verdict = assay::Verdict::failed;
            check.figure = std::chrono::duration<double>(activity.running()).count();
            check.bound = std::chrono::duration<double>(timeout).count();
            check.seconds = check.figure;
            check.detail = what + ": no result after " + std::to_string(timeout.count()) + " ms";
            observer.on_hang(check);
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace

assay::Candidate candidate_of(const Stack& stack) {
    return {*stack.file,  stack.audit,  *stack.tokenizer, stack.resolution.plan, *stack.resolution.device,
            *stack.stream, *stack.weights, *stack.prefill, stack.decode(), stack.resolution.plan.mixed && !stack.decode_own,
            *stack.cache, *stack.runner, stack.context_length()};
}

std::filesystem::path calibration_path(const config::Config& config) {
    if (!config.assay.calibration.empty()) return config.assay.calibration;
    return config.model.path.string() + ".assay.json";
}

assay::Report prove(const config::Config& config, Stack& stack, const ProofObserver& observer) {
    const auto stage = [&](const std::string& line) {
        if (observer.on_stage) observer.on_stage(line);
    };
    assay::Options options;
    std::string calibration_text, probes_text;
    options.depth = config.assay.depth == config::AssayDepth::quick ? assay::quick_depth() : assay::full_depth();
    options.calibration = find_calibration(config, calibration_text);
    options.probes = read_probes(config, probes_text);
    options.seed = static_cast<std::uint64_t>(config.assay.seed);
    options.on_check = observer.on_check;
    options.is_cancelled = observer.is_cancelled;
    stage("assay: hashing the model");
    options.model_hash = assay::hash_model(*stack.file, stack.control_lanes->abi()).model;

    ReferencePlan reference{*stack.registry, config, *stack.file, stack.audit, *stack.lanes, stack.context_length()};
    const assay::ReportCache cache{config.assay.cache ? (config.assay.cache_folder.empty() ? assay::ReportCache::default_folder()
                                                                                           : config.assay.cache_folder)
                                                      : std::filesystem::path{}};
    const model::RunnerLimits& limits = stack.runner->limits();
    const assay::CacheKey key{assay::program_hash(), options.model_hash, options.depth.name,
                              std::to_string(limits.max_seqs) + ' ' + std::to_string(limits.max_tokens) + ' ' +
                                  std::to_string(limits.max_logit_rows) + ' ' + std::to_string(limits.max_kv_len) + ' ' +
                                  std::to_string(stack.cache->num_blocks()) + ' ' + std::to_string(stack.lanes->width()) + '\n' + calibration_text +
                                  '\n' + probes_text,
                              assay::plan_identity(stack.resolution.plan) + assay::plan_identity(reference.plan())};
    if (auto found = cache.find(key)) return *found;

    assay::Activity activity;
    options.activity = &activity;
    const assay::Candidate candidate = candidate_of(stack);
    assay::Report report;
    {
        const Watcher watcher{activity, observer, config.assay.timeout};
        report = assay::run(candidate, reference.reference(), options);
    }
    cache.keep(key, report);
    return report;
}

}  // namespace app
