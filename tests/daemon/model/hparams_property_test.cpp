// Any metadata at all: every reader refuses it with a ModelError or gives sizes that nothing behind it
// needs to check again.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "daemon/base/error.hpp"
#include "tests/daemon/model/model_spec.hpp"

namespace model {
namespace {

/// A model that every architecture may read: the keys of all of them.
base::Metadata plausible(std::string_view arch) {
    auto m = model_test::with_indexer(model_test::mla(std::string{arch}), {});
    m.set("attention.sliding_window", 8);
    m.set_string("rope.scaling.type", "yarn");
    m.set_float("rope.scaling.factor", 4);
    m.set("rope.scaling.original_context_length", 64);
    m.set_float("rope.scaling.yarn_log_multiplier", 0.1F);
    m.set_float("rope.scaling.yarn_beta_fast", 32);
    m.set_float("rope.scaling.yarn_beta_slow", 1);
    m.set_float("rope.scaling.yarn_ext_factor", 1);
    m.set_float("rope.scaling.attn_factor", 1);
    m.set_float("rope.freq_base", 10000);
    m.set_float("rope.freq_base_swa", 10000);
    m.set_float("expert_weights_scale", 2.5F);
    m.set_bool("expert_weights_norm", true);
    m.set_float("attention.temperature_scale", 0);
    m.set_array<bool>("attention.indexer.types", {true, false, true});
    return m.metadata();
}

class Mutator {
public:
    explicit Mutator(unsigned seed) : rng_{seed} {}

    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(rng_); }

    base::MetaValue value() {
        switch (below(8)) {
            case 0: return real();
            case 1: return below(2) == 0;
            case 2: return std::string{below(2) == 0 ? "linear" : "2"};
            case 3: return std::vector<std::int64_t>(length(), integer());
            case 4: return std::vector<double>(length(), real());
            case 5: return std::vector<bool>(length(), below(2) == 0);
            default: return integer();
        }
    }

private:
    std::int64_t integer() {
        constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
        constexpr std::int64_t kItems[] = {0,        1,           2,        3,         4,       5,        6,     8,
                                           10,       12,          63,       64,        255,     4096,     65536, 65537,
                                           1 << 24,  (1 << 24) + 1, 1 << 30, kMax >> 31, kMax >> 1, kMax, -1,   -kMax - 1};
        return kItems[below(std::size(kItems))];
    }
    double real() {
        constexpr double kInf = std::numeric_limits<double>::infinity();
        constexpr double kItems[] = {0,    1,     -1,   0.5,   4,    40,    1e-6,
                                     1e12, 1e300, -1e300, 1e-320, kInf, -kInf, std::numeric_limits<double>::quiet_NaN()};
        return kItems[below(std::size(kItems))];
    }
    std::size_t length() {
        constexpr std::size_t kItems[] = {0, 1, 2, 3, 4, 5, 4096};
        return kItems[below(std::size(kItems))];
    }

    std::mt19937 rng_;
};

void expect_usable(const Hparams& h) {
    ASSERT_GE(h.num_layers, 1);
    ASSERT_LE(h.num_layers + h.num_nextn_layers, 4096);
    ASSERT_EQ(h.layers.size(), static_cast<std::size_t>(h.num_layers));
    ASSERT_GE(h.context_length, 1);
    // Any two of these multiply, and four bytes an element, without overflow.
    for (int dim = static_cast<int>(Dim::none) + 1; dim <= static_cast<int>(Dim::ff_shexp); ++dim) {
        const std::int64_t size = size_of(static_cast<Dim>(dim), h);
        EXPECT_GE(size, 0) << "dim " << dim;
        EXPECT_LE(size, std::int64_t{1} << 42) << "dim " << dim;
    }
    EXPECT_TRUE(h.softmax_scale > 0 && std::isfinite(h.softmax_scale)) << h.softmax_scale;
    EXPECT_TRUE(h.expert_weights_scale > 0 && std::isfinite(h.expert_weights_scale)) << h.expert_weights_scale;
    EXPECT_TRUE(h.rms_eps > 0 && h.rms_eps < 1) << h.rms_eps;
    ASSERT_FALSE(h.ropes.empty());
    for (const RopeParams& rope : h.ropes) {
        EXPECT_TRUE(rope.magnitude > 0 && std::isfinite(rope.magnitude)) << rope.magnitude;
        if (rope.n_rot > 256) continue;
        for (const double f : inverse_frequencies(rope, {}))
            ASSERT_TRUE(f >= 0 && std::isfinite(f)) << "theta " << rope.theta << ", factor " << rope.factor;
    }
    for (const LayerParams& layer : h.layers) {
        EXPECT_GE(layer.window, 0);
        EXPECT_LT(static_cast<std::size_t>(layer.rope), h.ropes.size());
    }
    if (h.num_experts > 0) {
        EXPECT_EQ(h.num_experts % h.num_expert_groups, 0);
        EXPECT_GE(h.num_expert_groups_used, 1);
        EXPECT_GE(h.num_experts_per_tok, 1);
        EXPECT_LE(h.num_experts_per_tok, h.num_experts / h.num_expert_groups * h.num_expert_groups_used);
        EXPECT_TRUE(h.gating >= 1 && h.gating <= 4) << h.gating;
        EXPECT_GE(h.moe_intermediate_size, 1);
    }
    if (h.attn_class != ASSAY_ATTN_GQA) {
        EXPECT_GE(h.kv_lora_rank, 1);
        EXPECT_GE(h.qk_nope_head_dim, 1);
        EXPECT_EQ(h.head_dim, h.qk_nope_head_dim + h.qk_rope_head_dim);
        EXPECT_EQ(h.ropes.front().n_rot, h.qk_rope_head_dim);
    } else {
        EXPECT_EQ(h.num_q_heads % h.num_kv_heads, 0);
        EXPECT_LE(h.ropes.front().n_rot, h.head_dim);
    }
    if (h.attn_class == ASSAY_ATTN_MLA_DSA) {
        EXPECT_GE(h.index_topk, 1);
        EXPECT_GE(h.index_n_heads, 1);
        EXPECT_GE(h.index_head_dim, h.qk_rope_head_dim);
        EXPECT_EQ(h.layers.front().index_role, ASSAY_INDEX_FULL);
    }
}

TEST(HparamsProperty, AnyMetadataIsRefusedOrUsable) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Mutator mutate{seed};
    for (const std::string_view arch : architecture_names()) {
        SCOPED_TRACE(arch);
        const base::Metadata original = plausible(arch);
        std::vector<std::string> keys;
        for (const auto& [key, value] : original.all())
            if (key != "general.architecture") keys.push_back(key);
        int accepted = 0;
        for (int i = 0; i < 3000; ++i) {
            base::Metadata metadata;
            std::map<std::string, base::MetaValue> changes;
            for (std::size_t n = mutate.below(3); n > 0; --n) changes[keys[mutate.below(keys.size())]] = mutate.value();
            const std::string& erased = keys[mutate.below(2 * keys.size()) % keys.size()];
            for (const auto& [key, value] : original.all()) {
                const auto change = changes.find(key);
                if (key == erased && i % 2 == 0) continue;
                metadata.set(key, change == changes.end() ? value : change->second);
            }
            try {
                expect_usable(find_architecture(arch)->read(HparamReader{metadata}));
                ++accepted;
            } catch (const base::ModelError& e) {
                EXPECT_NE(std::string{e.what()}.find(std::string{arch} + "."), std::string::npos)
                    << "names no key: " << e.what();
            }
            if (testing::Test::HasFailure()) {
                for (const auto& [key, value] : changes)
                    ADD_FAILURE() << key << " as " << base::type_name(value) << " item " << value.index();
                return;
            }
        }
        EXPECT_GT(accepted, 100) << "most of what was tried says nothing";
    }
}

}  // namespace
}  // namespace model
