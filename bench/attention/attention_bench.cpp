// Times of an attention image beside the machine's limits, which are measured in the same run:
//   attention_bench [image] [tier] [kv dtype: f32 f16 bf16] [lanes] [part of a row's name]
// Read bandwidth bounds decode, fused multiply-adds bound prefill. Caches are larger than L2 (and
// than a fair share of L3) where the row says "cold".

#include "bench/quant/probes.hpp"
#include "tests/plugins/attention/image.hpp"
#include "tests/support/lanes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace attention_test {
namespace {

/// Processor time of a call, the least of five.
double seconds(const std::function<void()>& body) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
        const double begin = bench::now_seconds();
        body();
        least = std::min(least, bench::now_seconds() - begin);
    }
    return least;
}

struct Shape {
    const char* name;
    assay_attn_layer layer;
    int num_seqs, q_len, kv_len;
};

void measure(const Backend& backend, const Shape& shape, const assay_lanes* lanes, double bandwidth,
             double peak) {
    const assay_attn_layer& layer = shape.layer;
    Instance instance{backend, layer, 32, static_cast<std::int32_t>(lanes->width)};
    const bool is_mla = layer.attn_class != ASSAY_ATTN_GQA;
    const bool is_sparse = layer.attn_class == ASSAY_ATTN_MLA_DSA;
    const std::int64_t key_dim =
        is_mla ? layer.kv_lora_rank + layer.qk_rope_head_dim : layer.head_dim;
    const std::int64_t value_dim = is_mla ? layer.kv_lora_rank : layer.v_head_dim;
    const std::int64_t heads = layer.num_q_heads, blocks = (shape.kv_len + 31) / 32;
    const std::int64_t rows = std::int64_t{shape.num_seqs} * shape.q_len;
    std::mt19937 rng{1};

    std::vector<std::vector<std::uint16_t>> pages;
    std::uint64_t bytes_per_token = 0;
    std::vector<void*> planes(ASSAY_MAX_PLANES);
    for (std::uint32_t i = 0; i < instance.layout().num_planes; ++i) {
        const std::uint64_t per_token = instance.layout().planes[i].bytes_per_token;
        if (i == 0 || !is_mla) bytes_per_token += per_token;
        pages.emplace_back(static_cast<std::size_t>(blocks * 32 * shape.num_seqs) * per_token / 2);
        for (std::uint16_t& h : pages.back())
            h = static_cast<std::uint16_t>(0x3c00 + (rng() & 0x3ff));
        planes[i] = pages.back().data();
    }
    std::vector<std::int32_t> table(static_cast<std::size_t>(blocks * shape.num_seqs)), cu_q,
        kv_len;
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), rng);
    for (int i = 0; i <= shape.num_seqs; ++i) cu_q.push_back(i * shape.q_len);
    kv_len.assign(static_cast<std::size_t>(shape.num_seqs), shape.kv_len);
    std::vector<float> q(static_cast<std::size_t>(rows * heads * key_dim), 0.01F);
    std::vector<float> out(static_cast<std::size_t>(rows * heads * value_dim));
    std::uint64_t plan = 0, workspace_bytes = 0;
    assay_error err = sdk::make_error();
    instance.table().sizes(instance.self(), shape.num_seqs, static_cast<std::int32_t>(rows),
                           shape.kv_len, &plan, &workspace_bytes, &err);
    std::vector<unsigned char> workspace(workspace_bytes);
    assay_attn_batch batch{.size = sizeof batch,
                           .num_seqs = shape.num_seqs,
                           .num_decode_seqs = shape.q_len == 1 ? shape.num_seqs : 0,
                           .num_tokens = static_cast<std::int32_t>(rows),
                           .max_q_len = shape.q_len,
                           .max_kv_len = shape.kv_len,
                           .max_blocks = static_cast<std::int32_t>(blocks),
                           .cu_q = cu_q.data(),
                           .kv_len = kv_len.data(),
                           .block_table = table.data(),
                           .slot_map = nullptr,
                           .host_cu_q = cu_q.data(),
                           .host_kv_len = kv_len.data()};
    assay_stream stream{};
    stream.lanes = lanes;

    std::vector<std::int32_t> topk;
    double index_seconds = 0;
    if (is_sparse) {
        topk.assign(static_cast<std::size_t>(rows * layer.index_topk), -1);
        std::vector<float> index_q(
            static_cast<std::size_t>(rows * layer.index_n_heads * layer.index_head_dim), 0.1F);
        std::vector<float> weight(static_cast<std::size_t>(rows * layer.index_n_heads), 0.1F);
        // Index keys are f32: proper numbers of one size.
        auto* keys = static_cast<float*>(planes[1]);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < pages[1].size() / 2; ++i) keys[i] = normal(rng);
        assay_attn_index_args a{};
        a.size = sizeof a;
        a.batch = &batch;
        std::copy(planes.begin(), planes.end(), a.planes);
        a.q = sdk::make_tensor(index_q.data(), ASSAY_F32, rows, layer.index_n_heads,
                               layer.index_head_dim);
        a.head_weight = sdk::make_tensor(weight.data(), ASSAY_F32, rows, layer.index_n_heads);
        a.topk_slots = sdk::make_tensor(topk.data(), ASSAY_I32, rows, layer.index_topk);
        a.workspace = workspace.data();
        a.workspace_bytes = workspace_bytes;
        index_seconds = seconds([&] {
            if (instance.table().index(instance.self(), 0, &a, &stream, &err) != ASSAY_OK)
                std::puts(err.text);
        });
    }
    if (backend.kv_dtype == ASSAY_F32)
        for (std::size_t i = 0; i < (is_mla ? 1U : 2U); ++i) {
            auto* x = static_cast<float*>(planes[i]);
            for (std::size_t k = 0; k < pages[i].size() / 2; ++k)
                x[k] = 0.5F + static_cast<float>(rng() & 0xff) / 512;
        }
    assay_attn_args a{};
    a.size = sizeof a;
    a.batch = &batch;
    std::copy(planes.begin(), planes.end(), a.planes);
    a.q = sdk::make_tensor(q.data(), ASSAY_F32, rows, heads, key_dim);
    a.out = sdk::make_tensor(out.data(), ASSAY_F32, rows, heads, value_dim);
    if (is_sparse) a.topk_slots = sdk::make_tensor(topk.data(), ASSAY_I32, rows, layer.index_topk);
    a.workspace = workspace.data();
    a.workspace_bytes = workspace_bytes;
    const double t = seconds([&] {
        if (instance.table().run(instance.self(), 0, &a, &stream, &err) != ASSAY_OK)
            std::puts(err.text);
    });

    double pairs = 0;  // of a query and a key that it sees
    for (std::int64_t j = 0; j < shape.q_len; ++j) {
        const std::int64_t seen = shape.kv_len - shape.q_len + j + 1;
        pairs +=
            static_cast<double>(is_sparse ? std::min<std::int64_t>(seen, layer.index_topk) : seen);
    }
    pairs *= shape.num_seqs;
    const double kv = is_sparse ? pairs : static_cast<double>(shape.kv_len) * shape.num_seqs;
    const double bytes = kv * static_cast<double>(bytes_per_token);
    const double flops = 2 * pairs * static_cast<double>(heads * (key_dim + value_dim));
    std::printf("%-26s %9.3f ms  %6.2f GB/s, %3.0f %% of reading  %6.1f GFLOP/s, %3.0f %% of peak",
                shape.name, t * 1e3, bytes / t * 1e-9, 100 * bytes / t / bandwidth,
                flops / t * 1e-9, 100 * flops / t / peak);
    if (is_sparse) std::printf("  index %8.3f ms", index_seconds * 1e3);
    std::printf("\n");
}

}  // namespace
}  // namespace attention_test

int main(int argc, char** argv) {
    using namespace attention_test;
    const std::string image = argc > 1 ? argv[1] : "cpu-flash", tier = argc > 2 ? argv[2] : "auto";
    const std::string dtype = argc > 3 ? argv[3] : "f32";
    const std::uint32_t width = argc > 4 ? static_cast<std::uint32_t>(std::atoi(argv[4])) : 1;
    const Backend backend{image.c_str(), image == "reference" ? nullptr : tier.c_str(),
                          dtype == "f16"    ? ASSAY_F16
                          : dtype == "bf16" ? ASSAY_BF16
                                            : ASSAY_F32};
    support::TestLanes lanes{width};
    bench::is_cpu_time = width == 1;
    const double bandwidth = bench::read_bandwidth(lanes.get());
    const double peak = 2 * bench::f32_peak(lanes.get());
    std::printf("%s %s %s, %u lanes, %s time; reading %.1f GB/s, f32 %.1f GFLOP/s\n", image.c_str(),
                tier.c_str(), dtype.c_str(), width, bench::is_cpu_time ? "processor" : "wall",
                bandwidth * 1e-9, peak * 1e-9);
    const assay_attn_layer llama = gqa_layer(32, 8, 128, 128, 0.0884F);
    const assay_attn_layer demo = mla_layer(4, 256, 32, 0.1F);
    const assay_attn_layer glm = mla_layer(64, 512, 64, 0.0625F);
    const Shape shapes[] = {
        {"gqa32/8 decode 1x16k cold", llama, 1, 1, 16384},
        {"gqa32/8 decode 8x2k cold", llama, 8, 1, 2048},
        {"mha8 decode 1x16k cold", gqa_layer(8, 8, 128, 128, 0.0884F), 1, 1, 16384},
        {"gqa32/8 prefill 1k", llama, 1, 1024, 1024},
        {"mla4 decode 1x40k cold", demo, 1, 1, 40960},
        {"mla4 prefill 673", demo, 1, 673, 673},
        {"mla64 decode 1x16k cold", glm, 1, 1, 16384},
        {"mla64 prefill 128 of 1k", glm, 1, 128, 1024},
        {"dsa4 prefill 673 top 128", dsa_layer(demo, 4, 64, 128), 1, 673, 673},
        {"dsa64 decode 16k top 2048", dsa_layer(glm, 32, 128, 2048), 1, 1, 16384},
    };
    for (const Shape& shape : shapes)
        if (argc <= 5 || std::string_view{shape.name}.find(argv[5]) != std::string_view::npos)
            measure(backend, shape, lanes.get(), bandwidth, peak);
    return 0;
}
