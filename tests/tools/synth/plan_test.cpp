// What is planned for a preset, and what is written of it.

#include "tools/synth/plan.hpp"

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "plugins/loader/gguf/split.hpp"
#include "tools/synth/vocabulary.hpp"
#include "tools/synth/write.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

namespace synth {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

ModelPlan plan_of(std::string_view name, bool tiny, std::string_view more = "",
                  const char* formats = nullptr) {
    const Preset& preset = *find_preset(name);
    Keys keys;
    keys.set(preset.keys);
    if (tiny) make_tiny(keys);
    keys.set(more);
    return make_plan(std::string{name}, std::string{preset.arch}, std::move(keys),
                     std::string{preset.pre}, split_words(preset.optional),
                     formats != nullptr ? formats : std::string{preset.mix});
}

std::string format_of(const ModelPlan& plan, std::string_view name) {
    for (const PlannedTensor& t : plan.tensors)
        if (t.name == name) return t.type->format;
    return "absent";
}

class Written : public testing::Test {
protected:
    void TearDown() override { fs::remove_all(folder_); }
    std::string path(const std::string& name) {
        fs::create_directories(folder_);
        return folder_ / name;
    }
    static std::string bytes_of(const std::string& path) {
        std::ifstream in{path, std::ios::binary};
        return {std::istreambuf_iterator<char>{in}, {}};
    }
    const fs::path folder_ =
        fs::path{testing::TempDir()} / ("synth_test." + std::to_string(::getpid()));
};

// Counts of real files: architectures.md, appendix D and section 17.
TEST(SynthPlan, RealModelsHaveTheirNumberOfTensorsAndParameters) {
    const std::map<std::string_view, std::pair<std::size_t, std::uint64_t>> kCounts{
        {"glm-5", {1809, 753'864'139'008}},
        {"llama-8b", {292, 8'030'261'248}},
        {"deepseek-v3", {1086, 671'026'419'200}},
        {"deepseek-v2-lite", {404, 15'706'484'224}},
        {"qwen3moe-30b", {579, 30'532'122'624}},
        {"gpt-oss-20b", {459, 0}},
        {"glm4-9b", {523, 0}},
        {"deepseek-v3.2", {1418, 0}}};
    for (const auto& [name, count] : kCounts) {
        if (model::find_architecture(find_preset(name)->arch) == nullptr) continue;
        const ModelPlan plan = plan_of(name, false);
        EXPECT_EQ(plan.tensors.size(), count.first) << name;
        std::uint64_t parameters = 0;
        for (const PlannedTensor& t : plan.tensors)
            if (t.content != Content::rope_factors)
                parameters += t.bytes / t.type->block_bytes * t.type->block_elements;
        if (count.second != 0) {
            EXPECT_EQ(parameters, count.second) << name;
        }
    }
}

TEST(SynthPlan, AMixStoresSensitiveMatricesBetter) {
    const ModelPlan plan = plan_of("llama-8b", false);
    EXPECT_EQ(format_of(plan, "blk.0.ffn_down.weight"), "q6_k");
    EXPECT_EQ(format_of(plan, "blk.4.ffn_down.weight"), "q4_k");
    EXPECT_EQ(format_of(plan, "blk.6.attn_v.weight"), "q6_k");
    EXPECT_EQ(format_of(plan, "blk.31.attn_v.weight"), "q6_k");
    EXPECT_EQ(format_of(plan, "blk.0.attn_q.weight"), "q4_k");
    EXPECT_EQ(format_of(plan, "output.weight"), "q6_k");
    EXPECT_EQ(format_of(plan, "blk.0.attn_norm.weight"), "f32");
    EXPECT_NEAR(static_cast<double>(plan.data_bytes()), 4.92e9, 0.02e9);  // the real file: 4.92 GB
}

TEST(SynthPlan, RowsThatABlockDoesNotDivideFallBack) {
    const ModelPlan plan = plan_of("glm-5", false, "", "q4_k_m");
    EXPECT_EQ(format_of(plan, "blk.0.attn_k_b.weight"), "q5_0");  // rows of 192
    EXPECT_EQ(format_of(plan, "blk.3.ffn_gate_inp.weight"), "f32");
    EXPECT_EQ(format_of(plan, "blk.0.indexer.proj.weight"), "f32");
    EXPECT_EQ(format_of(plan_of("glm-5", false, "", "iq4_xs"), "blk.0.attn_k_b.weight"), "iq4_nl");
    EXPECT_EQ(format_of(plan_of("llama-1.1b", true, "feed_forward_length=520", "q8_0"),
                        "blk.0.ffn_down.weight"),
              "f16");
}

TEST(SynthPlan, MistakesAreNamed) {
    EXPECT_THROW(Keys{}.set("block_count"), std::invalid_argument);
    EXPECT_THROW(Keys{}.set("a=[1,true]"), std::invalid_argument);
    EXPECT_THROW(plan_of("llama-1.1b", true, "", "q9_k"), std::invalid_argument);
    EXPECT_THROW(make_plan("x", "llama", Keys{}, "llama-bpe", {}, "q8_0"), base::ModelError);
    EXPECT_THROW(make_plan("x", "no-such", Keys{}, "llama-bpe", {}, "q8_0"), base::ModelError);
    EXPECT_THROW(plan_of("llama-1.1b", true, "attention.head_count_kv=3"), base::ModelError);
}

TEST_F(Written, TheSameSeedWritesTheSameBytesWithAnyNumberOfThreads) {
    const ModelPlan plan = plan_of("glm-dsa-0.25b", true);
    write_model(plan, path("a"), {.seed = 5, .threads = 1});
    write_model(plan, path("b"), {.seed = 5, .threads = 3});
    write_model(plan, path("c"), {.seed = 6, .threads = 1});
    EXPECT_EQ(bytes_of(path("a")), bytes_of(path("b")));
    EXPECT_NE(bytes_of(path("a")), bytes_of(path("c")));
    try {
        write_model(plan, path("a"), {});
        FAIL() << "overwritten";
    } catch (const sdk::Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("exists already"));
    }
}

TEST_F(Written, ASparseFileHasTheHeaderAndTheSizeAndNoBlocks) {
    const ModelPlan plan = plan_of("glm-5", false);
    write_model(plan, path("whole"), {.sparse = true});
    EXPECT_GT(fs::file_size(path("whole")), 400'000'000'000);
    struct stat info {};
    ASSERT_EQ(::stat(path("whole").c_str(), &info), 0);
    EXPECT_LT(info.st_blocks * 512, 16 << 20);
    const auto parts = gguf::open_parts(path("whole"));
    EXPECT_EQ(parts.front().header.tensors.size(), 1809u);
}

TEST(SynthVocabulary, HasItsSizeAndNoTokenTwice) {
    for (const std::uint32_t size : {kMinVocabulary, 1000u, 154'880u, 262'144u}) {
        const Vocabulary v = make_vocabulary(size);
        ASSERT_EQ(v.tokens.size(), size);
        ASSERT_EQ(v.types.size(), size);
        EXPECT_EQ(v.merges.size(), size - 256 - 8);
        std::vector<std::string> sorted = v.tokens;
        std::sort(sorted.begin(), sorted.end());
        EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    }
    EXPECT_THROW((void)make_vocabulary(kMinVocabulary - 1), std::invalid_argument);
    EXPECT_THROW((void)make_vocabulary(1'000'000), std::invalid_argument);
}

}  // namespace
}  // namespace synth
