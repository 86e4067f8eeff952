#include "daemon/config/config.hpp"

#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "daemon/config/keys.hpp"
#include "tests/daemon/config/support.hpp"

namespace config {
namespace {

using std::chrono::milliseconds;

TEST(Config, MissingKeysHaveTheirDefaults) {
    const Config config = parse_text(with_model(""));
    EXPECT_EQ(config.server.listen, (Address{"127.0.0.1", 8080}));
    EXPECT_EQ(config.server.max_frame_bytes, 16 << 20);
    EXPECT_EQ(config.server.drain_timeout, milliseconds{30'000});
    EXPECT_EQ(config.backends.device, Alternatives{"cpu"});
    EXPECT_EQ(config.backends.attention.decode, Alternatives{"cpu-flash"});
    EXPECT_EQ(config.kv.block_size, 32);
    EXPECT_EQ(config.kv.dtype, KvDtype::automatic);
    EXPECT_EQ(config.log.level, LogLevel::info);
    EXPECT_EQ(config.plugins.folders, std::vector<std::filesystem::path>{"/opt/assay/plugins"});
    EXPECT_TRUE(config.metrics.enabled);
    EXPECT_EQ(config.generation, 1U);
}

TEST(Config, EveryTypeIsRead) {
    const Config config = parse_text(with_model(R"(
[server]
listen = "[::1]:0"
allowed_origins = ["https://a.example", "http://localhost:3000"]
[backends.attention]
prefill = ["cpu-flash", "reference"]
decode = "reference"
[kv]
block_size = 0x40
memory_fraction = 1
dtype = "f16"
[metrics]
vllm_aliases = true
[template]
timeout_ms = 1_500
[log]
format = "json"
)"));
    EXPECT_EQ(config.server.listen, (Address{"::1", 0}));
    EXPECT_EQ(config.server.allowed_origins.size(), 2U);
    EXPECT_EQ(config.backends.attention.prefill, (Alternatives{"cpu-flash", "reference"}));
    EXPECT_EQ(config.backends.attention.decode, Alternatives{"reference"});
    EXPECT_EQ(config.kv.block_size, 64);
    EXPECT_EQ(config.kv.memory_fraction, 1.0);
    EXPECT_EQ(config.kv.dtype, KvDtype::f16);
    EXPECT_TRUE(config.metrics.vllm_aliases);
    EXPECT_EQ(config.chat_template.timeout, milliseconds{1500});
    EXPECT_EQ(config.log.format, LogFormat::json);
}

TEST(Config, PathsAreRelativeToTheFileAndOriginIsTheExecutable) {
    const Config config = parse_text(R"(
[model]
path = "../models/m.gguf"
chat_template_file = "$ORIGIN/t.jinja"
[plugins]
folders = ["/usr/lib/assay/plugins", "$ORIGIN/../more"]
)");
    EXPECT_EQ(config.model.path, "/etc/models/m.gguf");
    EXPECT_EQ(config.model.chat_template_file, "/opt/assay/bin/t.jinja");
    EXPECT_EQ(config.plugins.folders, (std::vector<std::filesystem::path>{
                                          "/usr/lib/assay/plugins", "/opt/assay/more"}));
}

TEST(Config, RelativeFileNameIsTakenFromTheWorkingFolder) {
    const Config config =
        parse("model.path = 'm.gguf'", "conf/a.toml", test_environment());
    EXPECT_EQ(config.model.path, "/home/user/conf/m.gguf");
}

TEST(Config, VariablesWinOverTheFile) {
    Environment environment = test_environment();
    environment.variables["ASSAY_SERVER_LISTEN"] = "localhost:9000";
    environment.variables["ASSAY_MODEL_PATH"] = "m.gguf";
    environment.variables["ASSAY_KV_MEMORY_FRACTION"] = "0.25";
    environment.variables["ASSAY_BACKENDS_ATTENTION_DECODE"] = "cpu-flash,reference";
    environment.variables["ASSAY_METRICS_ENABLED"] = "false";
    environment.variables["ASSAY_TEMPLATE_TIMEOUT_MS"] = "50";
    const Config config = parse_text("[server]\nlisten = '127.0.0.1:1'\n", environment);
    EXPECT_EQ(config.server.listen, (Address{"localhost", 9000}));
    EXPECT_EQ(config.model.path, "/home/user/m.gguf");
    EXPECT_EQ(config.kv.memory_fraction, 0.25);
    EXPECT_EQ(config.backends.attention.decode, (Alternatives{"cpu-flash", "reference"}));
    EXPECT_FALSE(config.metrics.enabled);
    EXPECT_EQ(config.chat_template.timeout, milliseconds{50});
}

TEST(Config, PluginOptionsArePassedAsText) {
    const Config config = parse_text(with_model(R"(
[backends.options.cpu-flash]
tile = 64
mode = "wide"
exact = true
scale = 2.0
)"));
    const PluginOptions want{{"exact", "true"}, {"mode", "wide"}, {"scale", "2.0"}, {"tile", "64"}};
    ASSERT_EQ(config.backends.options.size(), 1U);
    EXPECT_EQ(config.backends.options.at("cpu-flash"), want);
}

TEST(Config, DescriptionNamesEveryKeyWithItsOrigin) {
    Environment environment = test_environment();
    environment.variables["ASSAY_KV_BLOCK_SIZE"] = "16";
    const std::string text =
        describe(parse_text(with_model("\n[log]\nlevel = 'warn'\n"), environment));
    for (const Key& key : keys()) {
        EXPECT_NE(text.find(key.full_name() + " = "), std::string::npos) << key.full_name();
    }
    EXPECT_NE(text.find("# ASSAY_KV_BLOCK_SIZE\n"), std::string::npos);
    EXPECT_NE(text.find("# a.toml:4\n"), std::string::npos);
    EXPECT_NE(text.find("# a.toml:1\n"), std::string::npos);
    EXPECT_NE(text.find("# default\n"), std::string::npos);
}

TEST(Config, DescriptionReadsBackAsTheSameValues) {
    const Config config = parse_text(R"(
[server]
listen = "[::1]:99"
allowed_origins = ["https://a.example"]
[model]
path = "dir with \"quotes\" and \\/ü.gguf"
alias = "näme"
allow_unused_tensors = ["v.*", "mm.?"]
[sampling]
temperature = 0.7
min_p = 1e-05
[backends]
quant = ["ggml", "other"]
[backends.options.ggml]
"x.y" = 1.5
[kv]
max_tokens = 4096
)");
    const std::string text = describe(config);
    // The comments tell the origin, which is another one the second time.
    const auto values = [](const std::string& lines) {
        std::string out;
        for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
            out += lines.substr(at, lines.find("  # ", at) - at) + '\n';
        }
        return out;
    };
    EXPECT_EQ(values(describe(parse_text(text))), values(text));
}

TEST(Config, LoadReadsAFile) {
    const std::filesystem::path file = std::filesystem::path{testing::TempDir()} / "config_test.toml";
    std::ofstream{file} << "model.path = 'm.gguf'\nkv.block_size = 8\n";
    const Config config = load(file, test_environment());
    EXPECT_EQ(config.kv.block_size, 8);
    EXPECT_EQ(config.model.path, file.parent_path() / "m.gguf");
    std::filesystem::remove(file);
    EXPECT_THROW((void)load(file, test_environment()), Mistakes);
    EXPECT_THROW((void)load(testing::TempDir(), test_environment()), Mistakes);
}

TEST(Config, EnvironmentOfTheProcessKnowsItsExecutable) {
    const Environment environment = Environment::of_process();
    EXPECT_TRUE(std::filesystem::exists(environment.executable_folder / "config_test"));
    EXPECT_TRUE(environment.working_folder.is_absolute());
    EXPECT_FALSE(environment.variables.empty());
}

TEST(Keys, NamesAndVariablesAreUnique) {
    std::set<std::string> names, variables;
    for (const Key& key : keys()) {
        EXPECT_TRUE(names.insert(key.full_name()).second) << key.full_name();
        EXPECT_TRUE(variables.insert(key.variable()).second) << key.variable();
        EXPECT_EQ(find_key(key.full_name()), &key);
        EXPECT_GT(key.help.size(), 20U) << key.full_name();
    }
    EXPECT_EQ(find_key("kv"), nullptr);
    EXPECT_EQ(find_key("kv.block_siz"), nullptr);
    EXPECT_EQ(find_key("kv_block_size"), nullptr);
}

TEST(Keys, ExpectationTellsTypeRangeAndUnit) {
    EXPECT_EQ(expectation(*find_key("kv.block_size")),
              "an integer from 1 to 1024, a power of two (tokens)");
    EXPECT_EQ(expectation(*find_key("kv.dtype")), "\"auto\", \"f32\", \"f16\" or \"bf16\"");
    EXPECT_EQ(expectation(*find_key("metrics.enabled")), "true or false");
    EXPECT_EQ(expectation(*find_key("kv.memory_fraction")), "a number from 0.01 to 1");
}

}  // namespace
}  // namespace config
