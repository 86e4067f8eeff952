// Every fault of the device changes the op that it says, and no other.

#include "image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

namespace faults_test {
namespace {

constexpr std::int64_t kRows = 5, kWidth = 64, kExperts = 8, kChoices = 2;

class Device {
public:
    explicit Device(const std::string& fault)
        : request_{fault.empty()
                       ? std::vector<std::pair<std::string, std::string>>{}
                       : std::vector<std::pair<std::string, std::string>>{{"fault", fault}}} {
        const auto config = request_.config<assay_device_config>();
        assay_error err = sdk::make_error();
        assay_device_ref ref{};
        if (api.open(nullptr, &config, &self, &ref, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        api.stream_create(self, 0, lanes_.get(), &stream, nullptr);
    }
    ~Device() {
        api.stream_destroy(self, &stream);
        api.close(self);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const assay_device& api = table<assay_device>(ASSAY_KIND_DEVICE);
    const assay_ops& ops = *api.ops;
    void* self = nullptr;
    assay_stream stream{};

private:
    Request request_;
    support::TestLanes lanes_;
};

/// What every op of a device gives for one set of inputs, as bits; an op that fails gives nothing.
using Results = std::map<std::string, std::vector<std::uint32_t>>;

Results run_all(const std::string& fault, std::uint32_t seed) {
    Device d{fault};
    std::mt19937 rng{seed};
    std::normal_distribution<float> normal;
    const auto random = [&](std::int64_t n) {
        std::vector<float> out(static_cast<std::size_t>(n));
        for (float& x : out) x = normal(rng);
        return out;
    };
    Results results;
    const auto keep = [&](const std::string& op, assay_status status, const auto& values) {
        auto& bits = results[op];
        if (status == ASSAY_OK)
            for (const auto v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
    };
    const auto matrix = [](auto& data, std::int64_t rows, std::int64_t n) {
        return sdk::make_tensor(
            data.data(),
            sizeof data[0] == 4 && std::is_integral_v<std::remove_reference_t<decltype(data[0])>>
                ? ASSAY_I32
                : ASSAY_F32,
            rows, n);
    };
    std::vector<float> x = random(kRows * kWidth), y = random(kRows * kWidth),
                       weight = random(kWidth), bias = random(kWidth);
    for (float& v : x) v *= 0.02F;  // so that an epsilon counts
    const assay_tensor X = matrix(x, kRows, kWidth), Y = matrix(y, kRows, kWidth);
    const assay_tensor W = sdk::make_tensor(weight.data(), ASSAY_F32, kWidth),
                       B = sdk::make_tensor(bias.data(), ASSAY_F32, kWidth);
    const auto fresh = [&] {
        return std::vector<float>(static_cast<std::size_t>(kRows * kWidth),
                                  std::bit_cast<float>(kSentinel));
    };

    for (int i = 0; i < 2; ++i) {
        auto out = fresh();
        const assay_tensor O = matrix(out, kRows, kWidth);
        const assay_status status = d.ops.rmsnorm(d.self, &X, nullptr, &W, 1e-5F, &O, &d.stream);
        keep(i == 0 ? "rmsnorm" : "rmsnorm again", status, out);
    }
    auto out = fresh();
    const assay_tensor O = matrix(out, kRows, kWidth);
    keep("layernorm", d.ops.layernorm(d.self, &X, &W, &B, 1e-5F, &O, &d.stream), out);
    keep("copy", d.ops.copy(d.self, &X, &O, &d.stream), out);
    keep("scale", d.ops.scale(d.self, &X, 3, &O, &d.stream), out);
    keep("add", d.ops.add(d.self, &X, &Y, 1, &O, &d.stream), out);
    keep("glu", d.ops.glu(d.self, ASSAY_GLU_SILU, 0, 0, &X, &Y, &O, &d.stream), out);
    const std::int32_t rows[] = {4, 1, 0, 3, 2};
    keep("gather_rows", d.ops.gather_rows(d.self, &Y, rows, &O, &d.stream), out);

    const std::int32_t positions[] = {0, 1, 5, 9, 40};
    const double inv_freq[] = {1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};
    std::vector<float> cos_sin(kRows * 2 * 8);
    const assay_tensor table = sdk::make_tensor(cos_sin.data(), ASSAY_F32, kRows, 2, 8);
    keep("rope_table",
         d.ops.rope_table(d.self, positions, kRows, inv_freq, 8, 1, &table, &d.stream), cos_sin);
    for (std::size_t i = 0; i < cos_sin.size(); ++i)
        cos_sin[i] = 0.1F * static_cast<float>(i % 11);  // the same for all
    for (const std::int64_t heads : {4, 2}) {
        const assay_tensor in = sdk::make_tensor(y.data(), ASSAY_F32, kRows, heads, kWidth / heads);
        std::copy_n(fresh().data(), out.size(), out.data());  // O stays a view of it
        const assay_tensor to =
            sdk::make_tensor(out.data(), ASSAY_F32, kRows, heads, kWidth / heads);
        keep(heads == 4 ? "rope" : "rope of a part",
             d.ops.rope(d.self, &in, &table, ASSAY_ROPE_NORM, &to, &d.stream), out);
    }

    std::vector<float> logits = random(kRows * kExperts), router_bias{3, 0, 0, 0, -3, 1, 0, 0},
                       gates(kRows * kChoices);
    std::vector<std::int32_t> ids(kRows * kChoices);
    const assay_tensor L = matrix(logits, kRows, kExperts),
                       RB = sdk::make_tensor(router_bias.data(), ASSAY_F32, kExperts);
    const assay_tensor I = matrix(ids, kRows, kChoices), G = matrix(gates, kRows, kChoices);
    const assay_router rule{sizeof rule, 2, kChoices, 0, 0, true, 2.5F};
    keep("router", d.ops.router(d.self, &rule, &L, &RB, &I, &G, &d.stream), gates);
    keep("router ids", ASSAY_OK, ids);
    const assay_router softmax{sizeof softmax, 1, kChoices, 0, 0, false, 1};
    keep("router of softmax", d.ops.router(d.self, &softmax, &L, nullptr, &I, &G, &d.stream),
         gates);

    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<std::int32_t>((i * 3 + i / 2) % kExperts);
    std::vector<std::int32_t> slot_of(ids.size()), row_ids(ids.size()), offset(kExperts + 1);
    keep("expert_sort",
         d.ops.expert_sort(d.self, &I, kExperts, slot_of.data(), row_ids.data(), offset.data(),
                           &d.stream),
         row_ids);
    for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = 0.25F + 0.05F * static_cast<float>(i);
    std::vector<float> slots = random(kRows * kChoices * kWidth);
    const assay_tensor S = matrix(slots, kRows * kChoices, kWidth);
    keep("expert_combine",
         d.ops.expert_combine(d.self, &S, slot_of.data(), &G, false, &O, &d.stream), out);

    const std::vector<std::uint32_t> bits(kRows * 2, 0x55555555U);
    const std::int32_t mask_row[] = {0, 1, 2, 3, 4};
    auto masked = y;
    const assay_tensor M = matrix(masked, kRows, kWidth);
    keep("logits_mask", d.ops.logits_mask(d.self, &M, bits.data(), 2, mask_row, &d.stream), masked);
    std::vector<float> logprob(kRows), top(kRows);
    std::vector<std::int32_t> tokens{3, 9, 2, 60, 1}, top_ids(kRows);
    keep("logprobs",
         d.ops.logprobs(d.self, &Y, tokens.data(), logprob.data(), 1, top_ids.data(), top.data(),
                        &d.stream),
         logprob);
    const std::vector<assay_sample_row> greedy(kRows, {0, 1, 0, 0, 0});
    keep("sample", d.ops.sample(d.self, &Y, greedy.data(), tokens.data(), &d.stream), tokens);
    return results;
}

struct Expected {
    const char* id;
    std::vector<std::string> ops;  // whose results differ
};

const std::vector<Expected>& expectations() {
    static const std::vector<Expected> kExpected{
        {"rope-style", {"rope", "rope of a part"}},
        {"index-rope-style", {"rope of a part"}},
        {"index-rope-absent", {"rope of a part"}},
        {"rope-position", {"rope_table"}},
        {"norm-eps", {"rmsnorm", "rmsnorm again"}},
        {"norm-last-row", {"rmsnorm", "rmsnorm again"}},
        {"layernorm-bias", {"layernorm"}},
        {"router-softmax", {"router"}},
        {"router-bias", {"router", "router ids"}},
        {"router-scale", {"router"}},
        {"router-unnormalized", {"router"}},
        {"expert-rows", {"expert_sort"}},
        {"combine", {"expert_combine"}},
        {"scale-ignored", {"scale"}},
        {"residual-scale", {"add"}},
        {"gather", {"gather_rows"}},
        {"sample", {"sample"}},
        {"mask", {"logits_mask"}},
        {"logprobs", {"logprobs"}},
        {"race", {"rmsnorm again"}},
        {"status", {"rmsnorm", "rmsnorm again"}},
    };
    return kExpected;
}

class DeviceFault : public testing::TestWithParam<Expected> {};

TEST_P(DeviceFault, ChangesWhatItSaysAndNothingElse) {
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Results healthy = run_all("", seed), faulty = run_all(GetParam().id, seed);
    for (const auto& [op, bits] : healthy) {
        EXPECT_FALSE(bits.empty()) << op;
        const bool is_expected =
            std::find(GetParam().ops.begin(), GetParam().ops.end(), op) != GetParam().ops.end();
        if (op == "router ids" && GetParam().id == std::string{"router-softmax"}) continue;  // may
        EXPECT_EQ(bits != faulty.at(op), is_expected) << op;
    }
}

INSTANTIATE_TEST_SUITE_P(Table, DeviceFault, testing::ValuesIn(expectations()),
                         [](const auto& test) {
                             std::string name = test.param.id;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(DeviceFaults, EveryRowOfTheTableIsTested) {
    std::vector<std::string> known, tested{"hang"};
    try {
        Device{"no-such"};
    } catch (const std::runtime_error& e) {
        known = known_ids(e.what());
    }
    for (const Expected& e : expectations()) tested.emplace_back(e.id);
    std::sort(known.begin(), known.end());
    std::sort(tested.begin(), tested.end());
    EXPECT_EQ(known, tested);
}

TEST(DeviceFaults, HangDoesNotReturn) {
    const pid_t child = fork();
    if (child == 0) {
        (void)run_all("hang", 5);
        _exit(0);
    }
    usleep(300'000);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "the call returned";
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

}  // namespace
}  // namespace faults_test
