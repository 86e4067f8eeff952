// Times of the CUDA attention images beside the limits of the device, which are measured in the same
// run: copy bandwidth (bytes read and written) bounds decode. The matrix rate is a figure of the
// card that is given on the command line, since nothing here links a matrix library:
//   attention_cuda_bench [part of a row's name] [bf16 matrix rate, TFLOP/s]
// Inputs are random, caches several times the L2, pages in random order. Medians of events.

#include "tests/plugins/attention/image.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace attention_test {
namespace {

void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
}

/// Device memory with random normal numbers of a dtype, repeated every 4 Mi elements.
class Memory {
public:
    explicit Memory(std::size_t bytes) : bytes_{bytes} { check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 256))); }
    Memory(std::size_t elements, assay_dtype dtype) : Memory(elements * static_cast<std::size_t>(sdk::dtype_bytes(dtype))) {
        std::mt19937 rng{std::random_device{}()};
        std::normal_distribution<float> normal;
        const std::size_t unit = static_cast<std::size_t>(sdk::dtype_bytes(dtype));
        const std::size_t block = std::min<std::size_t>(elements, 4 << 20);
        std::vector<char> host(block * unit);
        for (std::size_t i = 0; i < block; ++i) {
            const float x = normal(rng);
            const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
            std::memcpy(host.data() + i * unit, unit == 4 ? static_cast<const void*>(&x) : &bits, unit);
        }
        for (std::size_t at = 0; at < bytes_; at += host.size())
            check(cudaMemcpy(static_cast<char*>(data_) + at, host.data(), std::min(host.size(), bytes_ - at),
                             cudaMemcpyHostToDevice));
    }
    template <class T>
    explicit Memory(const std::vector<T>& host) : Memory(host.size() * sizeof(T)) {
        check(cudaMemcpy(data_, host.data(), bytes_, cudaMemcpyHostToDevice));
    }
    ~Memory() { cudaFree(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    template <class T = void>
    [[nodiscard]] T* as() const { return static_cast<T*>(data_); }

private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

/// Median seconds of a call on a stream, and the distance of the quartiles over it.
struct Time {
    double seconds, spread;
};
Time median(const assay_stream& s, int times, const std::function<void()>& body) {
    const auto stream = static_cast<cudaStream_t>(s.native);
    cudaEvent_t from, to;
    check(cudaEventCreate(&from));
    check(cudaEventCreate(&to));
    std::vector<double> all;
    for (int i = 0; i < times + 2; ++i) {
        check(cudaEventRecord(from, stream));
        body();
        check(cudaEventRecord(to, stream));
        check(cudaEventSynchronize(to));
        float ms = 0;
        check(cudaEventElapsedTime(&ms, from, to));
        if (i >= 2) all.push_back(ms * 1e-3);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    std::sort(all.begin(), all.end());
    const double middle = all[all.size() / 2];
    return {middle, (all[all.size() * 3 / 4] - all[all.size() / 4]) / middle};
}

double copy_bandwidth(const assay_stream& s) {
    constexpr std::size_t kBytes = 2ULL << 30;
    const Memory from{kBytes / 2, ASSAY_BF16}, to{kBytes};
    const Time t = median(s, 10, [&] {
        check(cudaMemcpyAsync(to.as(), from.as(), kBytes, cudaMemcpyDeviceToDevice,
                              static_cast<cudaStream_t>(s.native)));
    });
    return 2.0 * kBytes / t.seconds;
}

struct Shape {
    const char* name;
    Backend backend;
    assay_attn_layer layer;
    int num_seqs, q_len, kv_len;
    assay_dtype io;
};

void measure(const Shape& shape, const assay_stream& stream, double bandwidth, double peak) {
    const assay_attn_layer& layer = shape.layer;
    const bool is_mla = layer.attn_class != ASSAY_ATTN_GQA, is_sparse = layer.attn_class == ASSAY_ATTN_MLA_DSA;
    Config config{shape.backend, 32};
    config.config.io_dtype = shape.io;
    assay_error err = sdk::make_error();
    const assay_attention& api = open_image(shape.backend.image);
    const assay_attn_layer* layers[] = {&layer};
    void* self = nullptr;
    char tier[32];
    assay_kv_layout layout{};
    layout.size = sizeof layout;
    if (api.kv_layout(&config.config, &layer, &layout, &err) != ASSAY_OK ||
        api.create(nullptr, &config.config, layers, 1, &self, tier, &err) != ASSAY_OK) {
        std::printf("%-34s %s\n", shape.name, err.text);
        return;
    }
    const std::int64_t key_dim = is_mla ? layer.kv_lora_rank + layer.qk_rope_head_dim : layer.head_dim;
    const std::int64_t value_dim = is_mla ? layer.kv_lora_rank : layer.v_head_dim;
    const std::int64_t heads = layer.num_q_heads, blocks = (shape.kv_len + 31) / 32;
    const std::int64_t rows = std::int64_t{shape.num_seqs} * shape.q_len;

    std::vector<std::unique_ptr<Memory>> pages;
    std::uint64_t bytes_per_token = 0;
    void* planes[ASSAY_MAX_PLANES] = {};
    for (std::uint32_t i = 0; i < layout.num_planes; ++i) {
        if (i == 0 || !is_mla) bytes_per_token += layout.planes[i].bytes_per_token;
        pages.push_back(std::make_unique<Memory>(
            static_cast<std::size_t>(blocks * 32 * shape.num_seqs) * layout.planes[i].width,
            static_cast<assay_dtype>(layout.planes[i].dtype)));
        planes[i] = pages.back()->as();
    }
    std::vector<std::int32_t> table(static_cast<std::size_t>(blocks * shape.num_seqs)), cu_q, kv_len;
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937{1});
    for (int i = 0; i <= shape.num_seqs; ++i) cu_q.push_back(i * shape.q_len);
    kv_len.assign(static_cast<std::size_t>(shape.num_seqs), shape.kv_len);
    const Memory table_d{table}, cu_q_d{cu_q}, kv_len_d{kv_len};
    const Memory q{static_cast<std::size_t>(rows * heads * key_dim), shape.io};
    const Memory out{static_cast<std::size_t>(rows * heads * value_dim), shape.io};
    std::uint64_t plan_bytes = 0, workspace_bytes = 0;
    api.sizes(self, shape.num_seqs, static_cast<std::int32_t>(rows), shape.kv_len, &plan_bytes, &workspace_bytes, &err);
    const Memory plan{plan_bytes}, workspace{workspace_bytes};
    assay_attn_batch batch{.size = sizeof batch,
                           .num_seqs = shape.num_seqs,
                           .num_decode_seqs = shape.q_len == 1 ? shape.num_seqs : 0,
                           .num_tokens = static_cast<std::int32_t>(rows),
                           .max_q_len = shape.q_len,
                           .max_kv_len = shape.kv_len,
                           .max_blocks = static_cast<std::int32_t>(blocks),
                           .cu_q = cu_q_d.as<std::int32_t>(),
                           .kv_len = kv_len_d.as<std::int32_t>(),
                           .block_table = table_d.as<std::int32_t>(),
                           .slot_map = nullptr,
                           .host_cu_q = cu_q.data(),
                           .host_kv_len = kv_len.data()};
    const auto must = [&](assay_status status) {
        if (status == ASSAY_OK) return;
        std::printf("%s: %s\n", shape.name, err.text);
        std::exit(1);
    };
    must(api.prepare(self, &batch, ASSAY_MIXED, plan.as(), &stream, &err));

    const std::size_t slots = is_sparse ? static_cast<std::size_t>(rows * layer.index_topk) : 0;
    const Memory topk{slots * 4};
    Time index_time{};
    if (is_sparse) {
        const Memory index_q{static_cast<std::size_t>(rows * layer.index_n_heads * layer.index_head_dim), shape.io};
        const Memory weight{static_cast<std::size_t>(rows * layer.index_n_heads), ASSAY_F32};
        assay_attn_index_args a{};
        a.size = sizeof a;
        a.batch = &batch;
        std::copy(planes, planes + ASSAY_MAX_PLANES, a.planes);
        a.q = sdk::make_tensor(index_q.as(), shape.io, rows, layer.index_n_heads, layer.index_head_dim);
        a.head_weight = sdk::make_tensor(weight.as(), ASSAY_F32, rows, layer.index_n_heads);
        a.topk_slots = sdk::make_tensor(topk.as(), ASSAY_I32, rows, layer.index_topk);
        a.plan = plan.as();
        a.workspace = workspace.as();
        a.workspace_bytes = workspace_bytes;
        index_time = median(stream, 10, [&] { must(api.index(self, 0, &a, &stream, &err)); });
    }
    assay_attn_args a{};
    a.size = sizeof a;
    a.batch = &batch;
    std::copy(planes, planes + ASSAY_MAX_PLANES, a.planes);
    a.q = sdk::make_tensor(q.as(), shape.io, rows, heads, key_dim);
    a.out = sdk::make_tensor(out.as(), shape.io, rows, heads, value_dim);
    if (is_sparse) a.topk_slots = sdk::make_tensor(topk.as(), ASSAY_I32, rows, layer.index_topk);
    a.plan = plan.as();
    a.workspace = workspace.as();
    a.workspace_bytes = workspace_bytes;
    const Time t = median(stream, 20, [&] { must(api.run(self, 0, &a, &stream, &err)); });
    api.destroy(self);

    double pairs = 0;  // of a query and a key that it sees
    for (std::int64_t j = 0; j < shape.q_len; ++j) {
        const std::int64_t seen = shape.kv_len - shape.q_len + j + 1;
        pairs += static_cast<double>(is_sparse ? std::min<std::int64_t>(seen, layer.index_topk) : seen);
    }
    pairs *= shape.num_seqs;
    const double kv = is_sparse ? pairs : static_cast<double>(shape.kv_len) * shape.num_seqs;
    const double bytes = kv * static_cast<double>(bytes_per_token);
    const double flops = 2 * pairs * static_cast<double>(heads * (key_dim + value_dim));
    std::printf("%-34s %9.1f us (+- %2.0f %%)  %5.2f TB/s, %3.0f %% of copy  %6.1f TFLOP/s, %3.0f %% of peak", shape.name,
                t.seconds * 1e6, 50 * t.spread, bytes / t.seconds * 1e-12, 100 * bytes / t.seconds / bandwidth,
                flops / t.seconds * 1e-12, 100 * flops / t.seconds / peak);
    if (is_sparse) std::printf("  index %7.1f us", index_time.seconds * 1e6);
    std::printf("  [%s]\n", tier);
    std::fflush(stdout);
}

}  // namespace
}  // namespace attention_test

int main(int argc, char** argv) {
    using namespace attention_test;
    const std::string part = argc > 1 ? argv[1] : "";
    const double peak = (argc > 2 ? std::atof(argv[2]) : 786) * 1e12;
    Space space;
    const assay_stream& stream = space.stream();
    const double bandwidth = copy_bandwidth(stream);
    std::printf("%s, compute capability %d.%d, %d multiprocessors; copy %.2f TB/s, matrix rate given as %.0f TFLOP/s\n",
                cuda_device().name, cuda_device().arch / 10, cuda_device().arch % 10, cuda_device().num_units,
                bandwidth * 1e-12, peak * 1e-12);
    const assay_attn_layer llama = gqa_layer(32, 8, 128, 128, 0.0884F);
    const assay_attn_layer mla16 = mla_layer(16, 512, 64, 0.0625F), mla64 = mla_layer(64, 512, 64, 0.0625F);
    const Backend mma{"cuda-gqa", "mma", ASSAY_BF16}, wgmma{"cuda-gqa", "wgmma", ASSAY_BF16};
    const Backend plain{"cuda-gqa", "plain", ASSAY_BF16}, mla{"cuda-mla", "wgmma", ASSAY_BF16};
    const Backend mla_mma{"cuda-mla", "mma", ASSAY_BF16};
    const Shape shapes[] = {
        {"gqa32/8 prefill 16k mma", mma, llama, 1, 16384, 16384, ASSAY_BF16},
        {"gqa32/8 prefill 16k wgmma", wgmma, llama, 1, 16384, 16384, ASSAY_BF16},
        {"gqa32/8 prefill 2k wgmma, f32 io", wgmma, llama, 1, 2048, 2048, ASSAY_F32},
        {"gqa32/8 prefill 512 wgmma, f32 io", wgmma, llama, 1, 512, 512, ASSAY_F32},
        {"gqa32/8 d64 prefill 16k wgmma", wgmma, gqa_layer(32, 8, 64, 64, 0.125F), 1, 16384, 16384, ASSAY_BF16},
        {"gqa32/8 prefill 2k plain", plain, llama, 1, 2048, 2048, ASSAY_BF16},
        {"gqa32/8 decode 64x8k", mma, llama, 64, 1, 8192, ASSAY_BF16},
        {"gqa32/8 decode 64x8k plain", plain, llama, 64, 1, 8192, ASSAY_BF16},
        {"gqa32/8 decode 1x8k", mma, llama, 1, 1, 8192, ASSAY_F32},
        {"gqa32/8 decode 1x128", mma, llama, 1, 1, 128, ASSAY_F32},
        {"gqa32/8 decode 64x256", mma, llama, 64, 1, 256, ASSAY_F32},
        {"gqa8/8 d256 decode 64x8k", mma, gqa_layer(8, 8, 256, 256, 0.0625F), 64, 1, 8192, ASSAY_BF16},
        {"gqa64/8 d64 decode 64x8k", mma, gqa_layer(64, 8, 64, 64, 0.125F), 64, 1, 8192, ASSAY_BF16},
        {"mla16 decode 64x8k", mla, mla16, 64, 1, 8192, ASSAY_BF16},
        {"mla64 decode 64x8k", mla, mla64, 64, 1, 8192, ASSAY_BF16},
        {"mla16 decode 64x8k mma", mla_mma, mla16, 64, 1, 8192, ASSAY_BF16},
        {"mla64 decode 64x8k mma", mla_mma, mla64, 64, 1, 8192, ASSAY_BF16},
        {"mla64 decode 1x8k", mla, mla64, 1, 1, 8192, ASSAY_F32},
        {"mla64 prefill 4k", mla, mla64, 1, 4096, 4096, ASSAY_BF16},
        {"dsa64 decode 64x8k top 2048", mla, dsa_layer(mla64, 32, 128, 2048), 64, 1, 8192, ASSAY_BF16},
        {"dsa64 decode 1x8k top 2048", mla, dsa_layer(mla64, 32, 128, 2048), 1, 1, 8192, ASSAY_BF16},
        {"dsa64 prefill 4k top 2048", mla, dsa_layer(mla64, 32, 128, 2048), 1, 4096, 4096, ASSAY_BF16},
    };
    for (const Shape& shape : shapes)
        if (std::string_view{shape.name}.find(part) != std::string_view::npos)
            measure(shape, stream, bandwidth, peak);
    return 0;
}
