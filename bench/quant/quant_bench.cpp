// Speed of the products of a quant image, beside the limits of the machine in the same run.
//
//   quant_bench IMAGE [--lanes N] [--tier NAME]... [--format ID]... [--m 1,2,4,512] [--n N]
//     [--k K] [--against q4_k] [--take best] [--clock cpu]
//
// Decode (m = 1) reads weights larger than the caches and is compared with the read bandwidth;
// larger m are compared with the int8 or f32 peak. Medians of nine runs or more (--take best: the
// best). With --against, runs of that format alternate with each, and the last column is the share
// of its speed, in multiply-adds. With --clock cpu times are processor time of one lane, for
// machines with other work on them. --format all is every one in blocks.

#include "cxx/plugin.hpp"
#include "probes.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

/// Lanes that spin between calls, as an engine's do within a step.
class SpinLanes {
public:
    explicit SpinLanes(std::uint32_t width) {
        lanes_.size = sizeof lanes_;
        lanes_.width = width;
        lanes_.ctx = this;
        lanes_.run = [](const assay_lanes* l, std::uint32_t n, Fn fn, void* arg) {
            static_cast<SpinLanes*>(l->ctx)->run(n, fn, arg);
        };
        for (std::uint32_t lane = 1; lane < width; ++lane)
            workers_.emplace_back([this, lane] { work(lane); });
    }
    ~SpinLanes() {
        is_stopping_ = true;
        for (std::thread& t : workers_) t.join();
    }
    [[nodiscard]] const assay_lanes* get() const { return &lanes_; }

private:
    using Fn = void (*)(void*, std::uint32_t, std::uint32_t);
    void run(std::uint32_t n, Fn fn, void* arg) {
        fn_ = fn;
        arg_ = arg;
        n_ = n;
        next_ = 0;
        num_busy_ = static_cast<std::uint32_t>(workers_.size());
        generation_.fetch_add(1, std::memory_order_release);
        take(0);
        while (num_busy_.load(std::memory_order_acquire) != 0) __builtin_ia32_pause();
    }
    void take(std::uint32_t lane) {
        for (std::uint32_t i = next_++; i < n_; i = next_++) fn_(arg_, i, lane);
    }
    void work(std::uint32_t lane) {
        for (std::uint64_t seen = 0;;) {
            while (generation_.load(std::memory_order_acquire) == seen) {
                if (is_stopping_) return;
                __builtin_ia32_pause();
            }
            ++seen;
            take(lane);
            num_busy_.fetch_sub(1, std::memory_order_release);
        }
    }
    assay_lanes lanes_{};
    std::vector<std::thread> workers_;
    std::atomic<std::uint64_t> generation_{0};
    std::atomic<std::uint32_t> next_{0}, num_busy_{0};
    std::atomic<bool> is_stopping_{false};
    Fn fn_ = nullptr;
    void* arg_ = nullptr;
    std::uint32_t n_ = 0;
};

struct Options {
    std::string image;
    std::uint32_t lanes = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::string> tiers, formats;
    std::vector<std::int64_t> m{1, 2, 4, 8, 512};
    std::string against;
    std::int64_t n = 0, k = 0;  // 0: chosen by m
    bool is_best = false;
};

Options parse(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        if (arg.substr(0, 2) != "--") {
            o.image = arg;
        } else if (i + 1 < argc) {
            const std::string value = argv[++i];
            if (arg == "--lanes")
                o.lanes = static_cast<std::uint32_t>(std::stoul(value));
            else if (arg == "--tier")
                o.tiers.push_back(value);
            else if (arg == "--format")
                o.formats.push_back(value);
            else if (arg == "--against")
                o.against = value;
            else if (arg == "--n")
                o.n = std::stoll(value);
            else if (arg == "--k")
                o.k = std::stoll(value);
            else if (arg == "--take")
                o.is_best = value == "best";
            else if (arg == "--clock")
                bench::is_cpu_time = value == "cpu";
            else if (arg == "--m") {
                o.m.clear();
                for (std::size_t at = 0; at < value.size();) {
                    std::size_t used = 0;
                    o.m.push_back(std::stoll(value.substr(at), &used));
                    at += used + 1;
                }
            } else
                throw std::runtime_error{"unknown option " + arg};
        }
    }
    if (bench::is_cpu_time) o.lanes = 1;
    if (o.image.empty())
        throw std::runtime_error{
            "usage: quant_bench IMAGE [--lanes N] [--tier T] [--format F] [--m LIST]"};
    if (o.tiers.empty()) o.tiers = {"avx512-vnni", "avx512", "avx2"};
    if (o.formats.empty())
        o.formats = {"q4_k", "q5_k",   "q6_k",  "q8_0", "q4_0", "q5_0", "q2_k",
                     "q3_k", "iq4_xs", "mxfp4", "bf16", "f16",  "f32"};
    return o;
}

struct Limits {
    double read, int8, f32;
};

/// Weights of about 100 MB: any bits, and bits that are clear of infinities and subnormal numbers
/// wherever an f32 or an exponent may lie.
struct Bytes {
    explicit Bytes(std::uint8_t free_bits, std::uint8_t set_bits = 0)
        : data(std::size_t{100} << 20) {
        std::mt19937 rng{1};
        for (std::uint8_t& b : data) b = static_cast<std::uint8_t>((rng() & free_bits) | set_bits);
    }
    std::vector<std::uint8_t> data;
};

const std::vector<std::uint8_t>& bytes_for(const assay_quant_format& f) {
    static const Bytes any{0xff}, tame{0x0f, 0x30};
    const std::string id = f.id;
    return (f.block_cols == 1 || id == "mxfp4" || id == "q8_k" ? tame : any).data;
}

/// One product, ready to run.
class Case {
public:
    Case(const Options& options, const assay_quant& quant, void* self, const assay_quant_format& f,
         std::int64_t m)
        : format{f}, m{m}, quant_{quant}, self_{self} {
        // Decode: all the weights. Prefill: the down projection of a 1.1B model.
        const std::vector<std::uint8_t>& bytes = bytes_for(f);
        k = options.k > 0 ? options.k : m <= 16 ? 4096 : 5632;
        row_bytes = k / f.block_cols * f.block_bytes;
        n = options.n > 0 ? options.n
            : m <= 16     ? static_cast<std::int64_t>(bytes.size()) / row_bytes / 16 * 16
                          : 2048;
        w_.size = sizeof w_;
        w_.format = f.id;
        w_.layout = ASSAY_LAYOUT_STORED;
        w_.experts = 1;
        w_.rows = n;
        w_.cols = k;
        w_.data = bytes.data();
        w_.data_bytes = bytes.size();
        x_.resize(static_cast<std::size_t>(m * k));
        y_.resize(static_cast<std::size_t>(m * n));
        std::mt19937 rng{1};
        std::normal_distribution<float> normal;
        for (float& v : x_) v = normal(rng);
        a_.size = sizeof a_;
        a_.num_weights = 1;
        a_.w[0] = &w_;
        a_.x = sdk::make_tensor(x_.data(), ASSAY_F32, m, k);
        a_.y[0] = sdk::make_tensor(y_.data(), ASSAY_F32, m, n);
        a_.workspace_bytes = quant.workspace_bytes(self, ASSAY_Q_MATMUL, a_.w, 1, m);
        workspace_.reset(std::aligned_alloc(256, (a_.workspace_bytes + 255) / 256 * 256));
        a_.workspace = workspace_.get();
    }
    Case(const Case&) = delete;
    Case& operator=(const Case&) = delete;

    /// Seconds of one run.
    double run(const assay_stream& stream) {
        assay_error err = sdk::make_error();
        const double start = bench::now_seconds();
        if (quant_.matmul(self_, &a_, &stream, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        return bench::now_seconds() - start;
    }
    [[nodiscard]] double ops() const { return 2.0 * static_cast<double>(m * n * k); }

    const assay_quant_format& format;
    std::int64_t m, n = 0, k = 0, row_bytes = 0;

private:
    const assay_quant& quant_;
    void* self_;
    assay_weight w_{};
    std::vector<float> x_, y_;
    assay_matmul a_{};
    std::unique_ptr<void, decltype(&std::free)> workspace_{nullptr, std::free};
};

/// Seconds of each case by alternating runs, after one that does not count.
std::vector<double> measure(const std::vector<Case*>& cases, const assay_stream& stream,
                            bool is_best) {
    std::vector<std::vector<double>> seconds(cases.size());
    double total = 0;
    for (int i = 0; i < 10 || (i < 2000 && total < 0.2 * static_cast<double>(cases.size())); ++i)
        for (std::size_t c = 0; c < cases.size(); ++c) {
            const double t = cases[c]->run(stream);
            if (i == 0) continue;
            seconds[c].push_back(t);
            total += t;
        }
    std::vector<double> result;
    for (std::vector<double>& all : seconds) {
        std::sort(all.begin(), all.end());
        result.push_back(is_best ? all.front() : all[all.size() / 2]);
    }
    return result;
}

struct Bench {
    const Options& options;
    const assay_quant& quant;
    assay_stream stream;
    Limits limits;

    [[nodiscard]] const assay_quant_format& format(const std::string& id) const {
        for (std::uint32_t i = 0; i < quant.num_formats; ++i)
            if (id == quant.formats[i]->id) return *quant.formats[i];
        throw std::runtime_error{"no format " + id};
    }

    void run(void* self, const char* tier, const std::string& id, std::int64_t m) const {
        Case one{options, quant, self, format(id), m};
        std::vector<Case*> cases{&one};
        std::unique_ptr<Case> other;
        if (!options.against.empty()) {
            other = std::make_unique<Case>(options, quant, self, format(options.against), m);
            cases.push_back(other.get());
        }
        const std::vector<double> t = measure(cases, stream, options.is_best);
        const double gb_s = static_cast<double>(one.n * one.row_bytes) / t[0] / 1e9;
        const double gop_s = one.ops() / t[0] / 1e9;
        const double peak = one.format.block_cols > 1 && limits.int8 > 0 ? limits.int8 : limits.f32;
        std::printf("%-12s %-8s m %4lld  %9.3f ms  %7.2f GB/s (%3.0f%%)  %8.1f GOP/s (%3.0f%%)",
                    tier, id.c_str(), static_cast<long long>(m), t[0] * 1e3, gb_s,
                    100 * gb_s * 1e9 / limits.read, gop_s, 100 * gop_s * 1e9 / 2 / peak);
        if (other != nullptr)
            std::printf("  %5.2f of %s", one.ops() / t[0] / (other->ops() / t[1]),
                        options.against.c_str());
        std::printf("\n");
        std::fflush(stdout);
    }
};

}  // namespace

int main(int argc, char** argv) try {
    const Options options = parse(argc, argv);
    void* handle = dlopen(options.image.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error{dlerror()};
    const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
    assay_error err = sdk::make_error();
    if (module == nullptr || module->open(nullptr, &err) != ASSAY_OK)
        throw std::runtime_error{"not an image"};
    const auto* quant = static_cast<const assay_quant*>(module->query(ASSAY_KIND_QUANT));

    const SpinLanes lanes{options.lanes};
    assay_device_ref device{};
    device.size = sizeof device;
    device.kind = "cpu";
    device.num_units = static_cast<std::int32_t>(options.lanes);
    std::vector<std::string> formats = options.formats;
    if (formats == std::vector<std::string>{"all"}) {
        formats.clear();
        for (std::uint32_t i = 0; i < quant->num_formats; ++i)
            if (quant->formats[i]->block_cols > 1) formats.emplace_back(quant->formats[i]->id);
    }

    for (const std::string& tier : options.tiers) {
        const assay_option option{"tier", tier.c_str()};
        const assay_quant_config config{sizeof config, &device, &option, 1};
        void* self = nullptr;
        char name[32];
        if (quant->create(nullptr, &config, &self, name, &err) != ASSAY_OK) {
            std::printf("%s: %s\n", tier.c_str(), err.text);
            continue;
        }
        for (const std::string& id : formats) {
            const Limits limits{bench::read_bandwidth(lanes.get()), bench::int8_peak(lanes.get()),
                                bench::f32_peak(lanes.get())};
            std::printf("limits: read %.1f GB/s, int8 %.0f GOP/s, f32 %.0f GFLOP/s, %u lanes\n",
                        limits.read / 1e9, 2 * limits.int8 / 1e9, 2 * limits.f32 / 1e9,
                        options.lanes);
            const Bench bench{options, *quant, {&device, nullptr, lanes.get()}, limits};
            for (const std::int64_t m : options.m) bench.run(self, name, id, m);
        }
        quant->destroy(self);
    }
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
