// Every fault of products changes the rows that it says, and no others.

#include "image.hpp"
#include "tests/plugins/quant/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

namespace faults_test {
namespace {

using quant_test::Weights;

constexpr std::int64_t kN = 64, kK = 256, kExperts = 4;

struct Case {
    std::int32_t op = ASSAY_Q_MATMUL;
    const char* format = "bf16";
    std::int64_t m = 10;
    std::int32_t num_weights = 1;
    std::int32_t glu = ASSAY_GLU_NONE;
    std::uint32_t flags = 0;
    bool has_bias = false;
    int num_calls = 1;
};

struct Outcome {
    std::vector<std::vector<float>> rows;  // one a row, all outputs and heads one after the other
    bool is_after_touched = false;
    assay_status status = ASSAY_OK;
    std::string words;
};

class Instance {
public:
    explicit Instance(const std::vector<std::pair<std::string, std::string>>& options)
        : request_{options} {
        auto config = request_.config<assay_quant_config>();
        config.device = &request_.device;
        assay_error err = sdk::make_error();
        char tier[32];
        if (api.create(nullptr, &config, &self, tier, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        stream.device = &request_.device;
        stream.lanes = lanes_.get();
    }
    ~Instance() { api.destroy(self); }
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    const assay_quant& api = table<assay_quant>(ASSAY_KIND_QUANT);
    void* self = nullptr;
    assay_stream stream{};

private:
    Request request_;
    support::TestLanes lanes_;
};

std::vector<float> normals(std::mt19937& rng, std::int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = normal(rng);
    return out;
}

std::vector<std::pair<std::string, std::string>> options_of(const std::string& fault) {
    if (fault.empty()) return {};
    return {{"fault", fault}};
}

Outcome run(const std::vector<std::pair<std::string, std::string>>& options, const Case& c,
            std::uint32_t seed) {
    Instance in{options};
    std::mt19937 rng{seed};
    const bool is_batched = c.op == ASSAY_Q_BATCHED, is_grouped = c.op == ASSAY_Q_GROUPED;
    const std::int64_t experts = is_batched || is_grouped ? kExperts : 1;
    std::deque<Weights> weights;
    assay_matmul a{};
    a.size = sizeof a;
    a.num_weights = c.num_weights;
    a.glu = c.glu;
    a.glu_alpha = 1.702F;
    a.glu_limit = 0.1F;
    a.flags = c.flags;
    const std::int64_t guard = 64, heads = is_batched ? kExperts : 1;
    const std::vector<float> x = normals(rng, c.m * heads * kK);
    a.x = is_batched ? sdk::make_tensor(x.data(), ASSAY_F32, c.m, heads, kK)
                     : sdk::make_tensor(x.data(), ASSAY_F32, c.m, kK);
    std::vector<std::vector<float>> y, bias;
    for (std::int32_t i = 0; i < c.num_weights; ++i) {
        const Weights& w = weights.emplace_back(c.format, experts, kN, kK, rng);
        a.w[i] = &w.abi;
        y.emplace_back(
            static_cast<std::size_t>(2 * guard + c.m * heads * kN),
            (c.flags & ASSAY_MM_ACCUMULATE) != 0 ? 2.0F : std::bit_cast<float>(kSentinel));
        float* const at = y.back().data() + guard;
        a.y[i] = is_batched ? sdk::make_tensor(at, ASSAY_F32, c.m, heads, kN)
                            : sdk::make_tensor(at, ASSAY_F32, c.m, kN);
        bias.push_back(normals(rng, kN));
        if (c.has_bias) a.bias[i] = sdk::make_tensor(bias.back().data(), ASSAY_F32, kN);
    }
    // Slots of the experts: 2, 3, 3 and the rest.
    const std::int32_t offset[] = {0, 2, 5, 8, static_cast<std::int32_t>(c.m)};
    if (is_grouped) {
        a.expert_offset = offset;
        a.num_slots = a.max_rows_per_expert = static_cast<std::int32_t>(c.m);
    }
    a.workspace_bytes = in.api.workspace_bytes(in.self, c.op, a.w, a.num_weights, c.m);
    Workspace workspace{a.workspace_bytes};
    a.workspace = workspace.data();
    assay_error err = sdk::make_error();
    Outcome outcome;
    for (int i = 0; i < c.num_calls; ++i) {
        const auto call = is_batched   ? in.api.batched_matmul
                          : is_grouped ? in.api.grouped_matmul
                                       : in.api.matmul;
        outcome.status = call(in.self, &a, &in.stream, &err);
    }
    outcome.words = err.text;
    const float untouched = y.front().front();
    for (const auto& one : y)
        outcome.is_after_touched |= std::any_of(one.end() - guard, one.end(), [&](float f) {
            return std::bit_cast<std::uint32_t>(f) != std::bit_cast<std::uint32_t>(untouched);
        });
    const std::int64_t width = heads * kN;
    for (std::int64_t m = 0; m < c.m; ++m) {
        auto& row = outcome.rows.emplace_back();
        for (std::size_t i = 0; i < (c.glu != 0 ? 1U : y.size()); ++i)
            row.insert(row.end(), y[i].begin() + guard + m * width,
                       y[i].begin() + guard + (m + 1) * width);
    }
    return outcome;
}

using Which = std::function<bool(std::int64_t row)>;
bool all(std::int64_t) {
    return true;
}
bool none(std::int64_t) {
    return false;
}
Which only(std::int64_t wanted) {
    return [wanted](std::int64_t row) { return row == wanted; };
}

struct Expected {
    const char* id;
    const char* where;  // for the test's name
    Case problem;
    Which differs;
    bool after = false;
};

const std::vector<Expected>& expectations() {
    static const std::vector<Expected> kExpected{
        {"silent", "matmul", {}, all},
        {"private-buffer", "matmul", {}, all},
        {"private-buffer", "grouped", {.op = ASSAY_Q_GROUPED}, all},
        {"last-row", "matmul", {}, only(9)},
        {"last-row", "batched", {.op = ASSAY_Q_BATCHED}, only(9)},
        {"last-row", "one", {.m = 1}, none},
        {"past-end", "matmul", {}, none, true},
        {"past-end", "batched", {.op = ASSAY_Q_BATCHED}, none, true},
        {"batch-9", "ten", {}, [](std::int64_t row) { return row >= 8; }},
        {"batch-9", "eight", {.m = 8}, none},
        {"odd-rows", "nine", {.m = 9}, only(8)},
        {"odd-rows", "ten", {}, none},
        {"odd-rows", "one", {.m = 1}, none},
        {"k-tail", "matmul", {}, all},
        {"experts-swapped",
         "grouped",
         {.op = ASSAY_Q_GROUPED},
         [](std::int64_t row) { return row < 5; }},
        {"experts-swapped", "batched", {.op = ASSAY_Q_BATCHED}, none},
        {"transposed", "batched", {.op = ASSAY_Q_BATCHED}, all},
        {"transposed", "matmul", {}, none},
        {"gate-up-swapped", "matmul", {.num_weights = 2, .glu = ASSAY_GLU_SILU}, all},
        {"gate-up-swapped",
         "grouped",
         {.op = ASSAY_Q_GROUPED, .num_weights = 2, .glu = ASSAY_GLU_SILU},
         all},
        {"fused-order", "matmul", {.num_weights = 2}, all},
        {"fused-order", "single", {}, none},
        {"residual-lost", "matmul", {.flags = ASSAY_MM_ACCUMULATE}, all},
        {"bias-ignored", "matmul", {.has_bias = true}, all},
        {"coarse-inputs", "q4_k", {.format = "q4_k", .flags = ASSAY_MM_PRECISE}, all},
        {"clamp-ignored", "matmul", {.num_weights = 2, .glu = ASSAY_GLU_SILU_CLAMP}, all},
        {"silu-for-gelu", "matmul", {.num_weights = 2, .glu = ASSAY_GLU_GELU_TANH}, all},
        {"high-bits", "q6_k", {.format = "q6_k"}, all},
        {"high-bits", "q5_0", {.format = "q5_0"}, all},
        {"high-bits", "q4_k", {.format = "q4_k"}, none},
        {"scale-min", "q4_k", {.format = "q4_k"}, all},
        {"scale-min", "grouped", {.op = ASSAY_Q_GROUPED, .format = "q2_k"}, all},
        {"scale-min", "q8_0", {.format = "q8_0"}, none},
        {"race", "once", {}, none},
        {"race", "twice", {.num_calls = 2}, only(0)},
        {"nan", "matmul", {}, only(9)},
        {"constant", "matmul", {}, all},
        {"stuck", "matmul", {}, all},
    };
    return kExpected;
}
constexpr const char* kOwnTests[] = {"next-row", "status", "hang", "no-format", "no-grouped"};

class QuantFault : public testing::TestWithParam<Expected> {};

TEST_P(QuantFault, ChangesWhatItSaysAndNothingElse) {
    const Expected& expected = GetParam();
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Outcome healthy = run({}, expected.problem, seed),
                  faulty = run(options_of(expected.id), expected.problem, seed);
    ASSERT_EQ(healthy.status, ASSAY_OK) << healthy.words;
    ASSERT_EQ(faulty.status, ASSAY_OK) << faulty.words;
    EXPECT_FALSE(healthy.is_after_touched);
    EXPECT_EQ(faulty.is_after_touched, expected.after);
    for (std::size_t r = 0; r < healthy.rows.size(); ++r) {
        const auto &a = healthy.rows[r], &b = faulty.rows[r];
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0,
                  expected.differs(static_cast<std::int64_t>(r)))
            << "row " << r;
    }
}

INSTANTIATE_TEST_SUITE_P(Table, QuantFault, testing::ValuesIn(expectations()),
                         [](const auto& test) {
                             std::string name = std::string{test.param.id} + "_" + test.param.where;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(QuantFaults, EveryRowOfTheTableIsTested) {
    std::vector<std::string> known;
    try {
        Instance{options_of("no-such")};
    } catch (const std::runtime_error& e) {
        known = known_ids(e.what());
    }
    std::vector<std::string> tested(std::begin(kOwnTests), std::end(kOwnTests));
    for (const Expected& e : expectations()) tested.emplace_back(e.id);
    std::sort(known.begin(), known.end());
    std::sort(tested.begin(), tested.end());
    tested.erase(std::unique(tested.begin(), tested.end()), tested.end());
    EXPECT_EQ(known, tested);
}

TEST(QuantFaults, FusedOutputsAreExchangedAndWhole) {
    const Case fused{.num_weights = 2};
    const Outcome healthy = run({}, fused, 5), faulty = run(options_of("fused-order"), fused, 5);
    ASSERT_EQ(healthy.status, ASSAY_OK) << healthy.words;
    for (std::size_t r = 0; r < healthy.rows.size(); ++r) {
        std::vector<float> turned = healthy.rows[r];
        std::rotate(turned.begin(), turned.begin() + kN, turned.end());
        EXPECT_EQ(turned, faulty.rows[r]);
    }
}

TEST(QuantFaults, CoarseInputsAreSmallErrors) {
    const Case precise{.format = "q4_k", .flags = ASSAY_MM_PRECISE};
    const Outcome healthy = run({}, precise, 5),
                  faulty = run(options_of("coarse-inputs"), precise, 5);
    double error = 0, size = 0;
    for (std::size_t r = 0; r < healthy.rows.size(); ++r)
        for (std::size_t i = 0; i < healthy.rows[r].size(); ++i) {
            error += std::pow(double{healthy.rows[r][i]} - double{faulty.rows[r][i]}, 2);
            size += std::pow(double{healthy.rows[r][i]}, 2);
        }
    EXPECT_GT(std::sqrt(error / size), 1e-4);
    EXPECT_LT(std::sqrt(error / size), 2e-2);
}

TEST(QuantFaults, OptionsChooseTheWeights) {
    const Case q6{.format = "q6_k"};
    const auto rows = run({}, q6, 5).rows;
    EXPECT_EQ(rows, run({{"fault", "high-bits"}, {"format", "q5_k"}}, q6, 5).rows);
    EXPECT_NE(rows, run({{"fault", "high-bits"}, {"format", "q6_k"}}, q6, 5).rows);
    EXPECT_EQ(rows, run({{"fault", "silent"}, {"rows", "63"}}, q6, 5).rows);
    EXPECT_FALSE(rows == run({{"fault", "constant"}, {"rows", "64"}}, q6, 5).rows);
}

std::vector<float> gather(const std::string& fault, const Weights& w,
                          const std::vector<std::int32_t>& ids) {
    Instance in{options_of(fault)};
    std::vector<float> out(ids.size() * kK);
    const assay_tensor t = sdk::make_tensor(out.data(), ASSAY_F32, ids.size(), kK);
    assay_error err = sdk::make_error();
    EXPECT_EQ(in.api.rows(in.self, &w.abi, ids.data(), static_cast<std::int64_t>(ids.size()), &t,
                          &in.stream, &err),
              ASSAY_OK)
        << err.text;
    return out;
}

TEST(QuantFaults, RowsAreAlteredAsProductsAre) {
    std::mt19937 rng{5};
    const Weights w{"q6_k", 1, kN, kK, rng};
    EXPECT_EQ(gather("next-row", w, {3, 5, 63}), gather("", w, {4, 6, 63}));
    EXPECT_NE(gather("high-bits", w, {3}), gather("", w, {3}));
    EXPECT_EQ(gather("silent", w, {3}), gather("", w, {3}));
}

TEST(QuantFaults, AnErrorComesBackWithItsWords) {
    const Outcome faulty = run(options_of("status"), {}, 5);
    EXPECT_EQ(faulty.status, ASSAY_INTERNAL);
    EXPECT_EQ(faulty.words, "the kernel could not be launched");
}

TEST(QuantFaults, WhatIsLackingIsRefusedWhenAsked) {
    assay_quant_query query{};
    query.size = sizeof query;
    query.op = ASSAY_Q_MATMUL;
    query.format = "q6_k";
    query.x_dtype = query.y_dtype = ASSAY_F32;
    query.num_weights = 1;
    query.m = 8;
    query.n = kN;
    query.k = kK;
    query.experts = 1;
    assay_error why = sdk::make_error();
    const Instance without{{{"fault", "no-format"}, {"format", "q6_k"}}};
    EXPECT_EQ(without.api.supports(without.self, &query, &why), ASSAY_NONE);
    EXPECT_STREQ(why.text, "format \"q6_k\": no kernel in this build");
    query.format = "q4_k";
    EXPECT_NE(without.api.supports(without.self, &query, &why), ASSAY_NONE);
    const Instance no_experts{options_of("no-grouped")};
    EXPECT_NE(no_experts.api.supports(no_experts.self, &query, &why), ASSAY_NONE);
    query.op = ASSAY_Q_GROUPED;
    query.experts = kExperts;
    EXPECT_EQ(no_experts.api.supports(no_experts.self, &query, &why), ASSAY_NONE);
}

TEST(QuantFaults, HangDoesNotReturn) {
    const pid_t child = fork();
    if (child == 0) {
        (void)run(options_of("hang"), {}, 5);
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
