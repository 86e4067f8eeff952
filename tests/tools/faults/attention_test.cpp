// Every fault of attention changes the queries that it says, and no others.

#include "image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace faults_test {
namespace {

constexpr std::int32_t kPage = 16, kBlocks = 16, kTopk = 32, kWindow = 24;

assay_attn_layer gqa() {
    assay_attn_layer l{};
    l.size = sizeof l;
    l.attn_class = ASSAY_ATTN_GQA;
    l.num_q_heads = 4;
    l.num_kv_heads = 2;
    l.head_dim = l.v_head_dim = 32;
    l.window = kWindow;
    l.softmax_scale = 0.2F;
    l.logit_softcap = 4;
    l.has_sinks = true;
    return l;
}

assay_attn_layer dsa() {
    assay_attn_layer l{};
    l.size = sizeof l;
    l.attn_class = ASSAY_ATTN_MLA_DSA;
    l.num_q_heads = 4;
    l.num_kv_heads = 1;
    l.kv_lora_rank = 64;
    l.qk_rope_head_dim = l.qk_nope_head_dim = l.v_head_dim = 32;
    l.index_role = ASSAY_INDEX_FULL;
    l.index_n_heads = 4;
    l.index_head_dim = 64;
    l.index_topk = kTopk;
    l.softmax_scale = 0.1F;
    return l;
}

struct Query {
    std::int32_t step, sequence, position, head;
    auto operator<=>(const Query&) const = default;
};

struct Outcome {
    std::map<Query, std::vector<float>> out;
    std::map<Query, std::multiset<std::int32_t>> selection;  // head 0
    bool is_before_touched = false, is_after_touched = false;
    assay_status status = ASSAY_OK;
    std::string words;
};

/// Three sequences: prefill of 40, 0 and 37 tokens, then decode steps of the first and the last.
class Engine {
public:
    Engine(const assay_attn_layer& layer,
           const std::vector<std::pair<std::string, std::string>>& options, std::uint32_t seed)
        : layer_{layer}, request_{options}, rng_{seed} {
        auto config = request_.config<assay_attn_config>();
        config.device = &request_.device;
        config.io_dtype = ASSAY_F32;
        config.kv_dtype = ASSAY_F32;
        config.page_tokens = kPage;
        assay_error err = sdk::make_error();
        assay_kv_layout layout{};
        layout.size = sizeof layout;
        const assay_attn_layer* layers[] = {&layer_};
        char tier[32];
        if (api_.kv_layout(&config, &layer_, &layout, &err) != ASSAY_OK ||
            api_.create(nullptr, &config, layers, 1, &self_, tier, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        std::uint64_t plan = 0, workspace = 0;
        api_.sizes(self_, 3, 128, kPage * kBlocks, &plan, &workspace, &err);
        workspace_bytes_ = workspace;
        workspace_ = std::make_unique<Workspace>(workspace);
        for (std::uint32_t p = 0; p < layout.num_planes; ++p)
            pages_.emplace_back(
                static_cast<std::size_t>(layout.planes[p].bytes_per_token * kPage * kBlocks * 3));
        stream_.device = &request_.device;
        stream_.lanes = lanes_.get();
    }
    ~Engine() { api_.destroy(self_); }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    Outcome run(int num_decodes) {
        step({{0, 40}, {1, 0}, {2, 37}}, ASSAY_PREFILL);
        for (int i = 0; i < num_decodes && outcome_.status == ASSAY_OK; ++i)
            step({{0, 1}, {2, 1}}, ASSAY_DECODE);
        return outcome_;
    }

private:
    [[nodiscard]] bool is_mla() const { return layer_.attn_class != ASSAY_ATTN_GQA; }

    assay_tensor random(std::vector<float>& data, std::int64_t rows, std::int64_t heads,
                        std::int64_t n) {
        std::normal_distribution<float> normal;
        data.resize(static_cast<std::size_t>(rows * heads * n));
        for (float& x : data) x = normal(rng_);
        return sdk::make_tensor(data.data(), ASSAY_F32, rows, heads, n);
    }
    static assay_tensor flat(const assay_tensor& t) {
        return sdk::make_tensor(t.data, ASSAY_F32, t.shape[0], t.shape[1] * t.shape[2]);
    }

    void step(const std::vector<std::pair<std::int32_t, std::int32_t>>& chunks,
              std::int32_t phase) {
        std::vector<std::int32_t> cu_q{0}, kv_len, table, slots;
        for (const auto& [seq, n] : chunks) {
            for (std::int32_t i = 0; i < n; ++i) {
                const std::int32_t at = length_[seq] + i;
                slots.push_back((seq * kBlocks + at / kPage) * kPage + at % kPage);
            }
            length_[seq] += n;
            cu_q.push_back(cu_q.back() + n);
            kv_len.push_back(length_[seq]);
            for (std::int32_t b = 0; b < kBlocks; ++b) table.push_back(seq * kBlocks + b);
        }
        const std::int32_t rows = cu_q.back();
        assay_attn_batch batch{};
        batch.size = sizeof batch;
        batch.num_seqs = static_cast<std::int32_t>(chunks.size());
        batch.num_decode_seqs = phase == ASSAY_DECODE ? batch.num_seqs : 0;
        batch.num_tokens = rows;
        batch.max_q_len = 40;
        batch.max_kv_len = *std::max_element(kv_len.begin(), kv_len.end());
        batch.max_blocks = kBlocks;
        batch.cu_q = batch.host_cu_q = cu_q.data();
        batch.kv_len = batch.host_kv_len = kv_len.data();
        batch.block_table = table.data();
        batch.slot_map = slots.data();

        const std::int64_t heads = layer_.num_q_heads;
        const std::int64_t key =
            is_mla() ? layer_.kv_lora_rank + layer_.qk_rope_head_dim : layer_.head_dim;
        const std::int64_t value = is_mla() ? layer_.kv_lora_rank : layer_.v_head_dim;
        std::vector<float> q, k, v, sinks, index_q, index_k, weights;
        std::vector<std::int32_t> topk(static_cast<std::size_t>(rows) * kTopk, -1);
        assay_attn_args a{};
        a.size = sizeof a;
        a.batch = &batch;
        a.phase = phase;
        for (std::size_t p = 0; p < pages_.size(); ++p) a.planes[p] = pages_[p].data();
        a.q = random(q, rows, heads, key);
        a.k = random(k, rows, is_mla() ? 1 : layer_.num_kv_heads, key);
        if (is_mla())
            a.k = flat(a.k);
        else
            a.v = random(v, rows, layer_.num_kv_heads, value);
        if (layer_.has_sinks) {
            sinks = {0.5F, -0.5F, 1, 0};
            a.sinks = sdk::make_tensor(sinks.data(), ASSAY_F32, heads);
        }
        const std::int64_t guard = 64;
        std::vector<float> out(static_cast<std::size_t>(2 * guard + rows * heads * value),
                               std::bit_cast<float>(kSentinel));
        a.out = sdk::make_tensor(out.data() + guard, ASSAY_F32, rows, heads, value);
        a.workspace = workspace_->data();
        a.workspace_bytes = workspace_bytes_;
        assay_attn_index_args x{};
        if (is_mla()) {
            a.index_k = flat(random(index_k, rows, 1, layer_.index_head_dim));
            a.topk_slots = sdk::make_tensor(topk.data(), ASSAY_I32, rows, kTopk);
            x.size = sizeof x;
            x.batch = &batch;
            x.phase = phase;
            std::copy(std::begin(a.planes), std::end(a.planes), x.planes);
            x.q = random(index_q, rows, layer_.index_n_heads, layer_.index_head_dim);
            x.head_weight = flat(random(weights, rows, 1, layer_.index_n_heads));
            x.topk_slots = a.topk_slots;
            x.workspace = a.workspace;
            x.workspace_bytes = a.workspace_bytes;
        }
        assay_error err = sdk::make_error();
        assay_status& status = outcome_.status;
        status = api_.append(self_, 0, &a, &stream_, &err);
        if (status == ASSAY_OK && is_mla()) status = api_.index(self_, 0, &x, &stream_, &err);
        if (status == ASSAY_OK) status = api_.run(self_, 0, &a, &stream_, &err);
        outcome_.words = err.text;
        const auto is_touched = [](float f) {
            return std::bit_cast<std::uint32_t>(f) != kSentinel;
        };
        outcome_.is_before_touched |= std::any_of(out.begin(), out.begin() + guard, is_touched);
        outcome_.is_after_touched |= std::any_of(out.end() - guard, out.end(), is_touched);
        for (std::size_t i = 0; i < chunks.size(); ++i)
            for (std::int32_t row = cu_q[i]; row < cu_q[i + 1]; ++row)
                for (std::int32_t h = 0; h < heads; ++h) {
                    const Query id{step_, chunks[i].first, kv_len[i] - cu_q[i + 1] + row, h};
                    const float* at = sdk::at<float>(a.out, row, h);
                    outcome_.out[id] = {at, at + value};
                    if (is_mla() && h == 0)
                        outcome_.selection[id] = {topk.begin() + row * kTopk,
                                                  topk.begin() + (row + 1) * kTopk};
                }
        ++step_;
    }

    const assay_attention& api_ = table<assay_attention>(ASSAY_KIND_ATTENTION);
    assay_attn_layer layer_;
    Request request_;
    std::mt19937 rng_;
    void* self_ = nullptr;
    support::TestLanes lanes_;
    assay_stream stream_{};
    std::uint64_t workspace_bytes_ = 0;
    std::unique_ptr<Workspace> workspace_;
    std::vector<std::vector<char>> pages_;
    std::map<std::int32_t, std::int32_t> length_;
    std::int32_t step_ = 0;
    Outcome outcome_;
};

using Which = std::function<bool(const Query&)>;

bool all(const Query&) {
    return true;
}
bool none(const Query&) {
    return false;
}

struct Expected {
    const char* id;
    Which differs;
    bool is_sparse = false;
    bool before = false, after = false;
};

const std::vector<Expected>& expectations() {
    static const std::vector<Expected> kExpected{
        {"silent", all},
        {"private-buffer", all},
        {"prefill-nothing", [](const Query& q) { return q.step == 0; }},
        {"last-row", [](const Query& q) { return q.sequence == 2 && q.position >= 36; }},
        {"last-head", [](const Query& q) { return q.head == 3; }},
        {"zero-length", [](const Query& q) { return q.step == 0 && q.sequence == 2; }},
        {"past-end", none, false, false, true},
        {"before-begin", none, false, true, false},
        {"scale", all},
        {"decode-scale", [](const Query& q) { return q.step > 0; }},
        {"stale-prefill", [](const Query& q) { return q.step == 1; }},
        {"mask-future",
         [](const Query& q) { return q.step == 0 && q.position != (q.sequence == 0 ? 39 : 36); }},
        {"mask-self", [](const Query& q) { return q.step > 0; }},
        {"second-page", [](const Query& q) { return q.position >= kPage; }},
        {"ragged", [](const Query& q) { return q.sequence == 2; }},
        {"window-ignored", [](const Query& q) { return q.position >= kWindow; }},
        {"window-off-by-one", [](const Query& q) { return q.position >= kWindow; }},
        {"sinks-ignored", all},
        {"softcap-ignored", all},
        {"head-dim-short", all},
        {"coarse-keys", all},
        {"last-token", [](const Query& q) { return q.sequence == 2 && q.position >= 36; }},
        {"race", [](const Query& q) { return q.step == 1; }},
        {"nan", all},
        {"overwritten", [](const Query& q) { return q.step > 0 && q.sequence == 0; }},
        {"past-topk", [](const Query& q) { return q.position >= kTopk; }, true},
        {"topk-loses-one", [](const Query& q) { return q.position >= kTopk; }, true},
        {"topk-first", [](const Query& q) { return q.position >= kTopk; }, true},
        {"index-unweighted", [](const Query& q) { return q.position >= kTopk; }, true},
    };
    return kExpected;
}
// Of no use to compare: they have tests of their own.
constexpr const char* kOwnTests[] = {"prefill-refused", "drift", "status", "hang"};

Outcome run(const char* fault, bool is_sparse, std::uint32_t seed, int num_decodes = 2,
            std::vector<std::pair<std::string, std::string>> options = {}) {
    if (*fault != '\0') options.emplace_back("fault", fault);
    return Engine{is_sparse ? dsa() : gqa(), options, seed}.run(num_decodes);
}

class AttentionFault : public testing::TestWithParam<Expected> {};

TEST_P(AttentionFault, ChangesWhatItSaysAndNothingElse) {
    const Expected& expected = GetParam();
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Outcome healthy = run("", expected.is_sparse, seed),
                  faulty = run(expected.id, expected.is_sparse, seed);
    ASSERT_EQ(healthy.status, ASSAY_OK) << healthy.words;
    ASSERT_EQ(faulty.status, ASSAY_OK) << faulty.words;
    EXPECT_FALSE(healthy.is_before_touched || healthy.is_after_touched);
    EXPECT_EQ(faulty.is_before_touched, expected.before);
    EXPECT_EQ(faulty.is_after_touched, expected.after);
    ASSERT_EQ(healthy.out.size(), faulty.out.size());
    // Two ways to compute may agree on a query by chance; on most they do not.
    int num_meant = 0, num_changed = 0;
    for (const auto& [query, values] : healthy.out) {
        const std::vector<float>& other = faulty.out.at(query);
        const bool is_equal =
            std::memcmp(values.data(), other.data(), values.size() * sizeof(float)) == 0;
        const bool is_meant = expected.differs(query);
        num_meant += is_meant ? 1 : 0;
        num_changed += is_meant && !is_equal ? 1 : 0;
        EXPECT_TRUE(is_equal || is_meant)
            << "step " << query.step << ", sequence " << query.sequence << ", position "
            << query.position << ", head " << query.head;
    }
    EXPECT_GE(num_changed, (num_meant * 8 + 9) / 10);
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionFault, testing::ValuesIn(expectations()),
                         [](const auto& test) {
                             std::string name = test.param.id;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(AttentionFaults, EveryRowOfTheTableIsTested) {
    std::vector<std::string> known;
    try {
        (void)run("no-such", false, 1);
    } catch (const std::runtime_error& e) {
        known = known_ids(e.what());
    }
    std::vector<std::string> tested(std::begin(kOwnTests), std::end(kOwnTests));
    for (const Expected& e : expectations()) tested.emplace_back(e.id);
    std::sort(known.begin(), known.end());
    std::sort(tested.begin(), tested.end());
    EXPECT_EQ(known, tested);
}

TEST(AttentionFaults, TopkLosesExactlyOnePosition) {
    const Outcome healthy = run("", true, 7), faulty = run("topk-loses-one", true, 7);
    for (const auto& [query, chosen] : healthy.selection) {
        const auto& other = faulty.selection.at(query);
        EXPECT_EQ(other.count(-1), chosen.count(-1) + (query.position >= kTopk ? 1U : 0U))
            << "position " << query.position;
    }
}

TEST(AttentionFaults, RefusedPrefillSaysSo) {
    const Outcome faulty = run("prefill-refused", false, 7);
    EXPECT_EQ(faulty.status, ASSAY_UNSUPPORTED);
    EXPECT_EQ(faulty.words, "forward_prefill is not implemented");
}

TEST(AttentionFaults, AnErrorComesBackWithItsWords) {
    const Outcome faulty = run("status", false, 7);
    EXPECT_EQ(faulty.status, ASSAY_INTERNAL);
    EXPECT_EQ(faulty.words, "the kernel could not be launched");
}

TEST(AttentionFaults, DriftBeginsAfterAHundredDecodeSteps) {
    const Outcome healthy = run("", false, 7, 103), faulty = run("drift", false, 7, 103);
    for (const auto& [query, values] : healthy.out)
        EXPECT_EQ(values != faulty.out.at(query), query.step > 100) << "step " << query.step;
}

TEST(AttentionFaults, BeginsAfterSoManySteps) {
    const Outcome healthy = run("", false, 7, 3),
                  faulty = run("last-head", false, 7, 3, {{"after", "2"}});
    for (const auto& [query, values] : healthy.out)
        EXPECT_EQ(values != faulty.out.at(query), query.step >= 2 && query.head == 3)
            << "step " << query.step;
}

TEST(AttentionFaults, WaitsForItsFile) {
    const std::string file = testing::TempDir() + "faults_when_" + std::to_string(getpid());
    unlink(file.c_str());
    const Outcome healthy = run("", false, 7),
                  waiting = run("last-head", false, 7, 2, {{"when", file}});
    EXPECT_TRUE(healthy.out == waiting.out);
    fclose(fopen(file.c_str(), "w"));
    EXPECT_FALSE(healthy.out == run("last-head", false, 7, 2, {{"when", file}}).out);
    unlink(file.c_str());
}

TEST(AttentionFaults, AnOptionThatIsNoCountIsRefused) {
    EXPECT_THROW((void)run("nan", false, 7, 0, {{"after", "soon"}}), std::runtime_error);
}

TEST(AttentionFaults, HangDoesNotReturn) {
    const pid_t child = fork();
    if (child == 0) {
        (void)run("hang", false, 7);
        _exit(0);
    }
    usleep(300'000);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "the call returned";
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

TEST(NoPrefill, SaysSoInItsTableAndWhenAsked) {
    const auto& api =
        *static_cast<const assay_attention*>(open_image("no-prefill").query(ASSAY_KIND_ATTENTION));
    const Request request{{}};
    auto config = request.config<assay_attn_config>();
    config.device = &request.device;
    config.io_dtype = ASSAY_F32;
    const assay_attn_layer layer = gqa();
    assay_error why = sdk::make_error();
    EXPECT_EQ(api.check(&config, &layer, ASSAY_DECODE, &why), ASSAY_OK) << why.text;
    EXPECT_EQ(api.check(&config, &layer, ASSAY_PREFILL, &why), ASSAY_UNSUPPORTED);
    EXPECT_STREQ(why.text, "no prefill kernel in this build");
    ASSERT_GT(api.num_caps, 0U);
    for (std::uint32_t i = 0; i < api.num_caps; ++i) {
        EXPECT_EQ(api.caps[i]->phases, std::uint32_t{ASSAY_DECODE});
        EXPECT_EQ(api.caps[i]->phases_absent, std::uint32_t{ASSAY_PREFILL | ASSAY_MIXED});
    }
}

}  // namespace
}  // namespace faults_test
