#include "daemon/config/mistakes.hpp"

#include <gtest/gtest.h>

#include "daemon/base/error.hpp"
#include "tests/daemon/config/support.hpp"

namespace config {
namespace {

/// One line of a file that is wrong, and what must be said about it.
struct Wrong {
    const char* line;    // line 3 of the file, after [section] in line 2
    const char* section;
    int column;
    const char* key;
    const char* found;
    const char* expected;
};

// clang-format off
constexpr Wrong kWrong[] = {
    {"block_size = \"32\"", "kv", 14, "kv.block_size", "\"32\"", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 48", "kv", 14, "kv.block_size", "48", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 0", "kv", 14, "kv.block_size", "0", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = -32", "kv", 14, "kv.block_size", "-32", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 2048", "kv", 14, "kv.block_size", "2048", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 32.0", "kv", 14, "kv.block_size", "32.0", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 4294967328", "kv", 14, "kv.block_size", "4294967328", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = {a = 1}", "kv", 14, "kv.block_size", "a table", "an integer from 1 to 1024, a power of two (tokens)"},
    {"block_size = 1979-05-27", "kv", 14, "kv.block_size", "a date", "an integer from 1 to 1024, a power of two (tokens)"},
    {"memory_fraction = nan", "kv", 19, "kv.memory_fraction", "nan", "a number from 0.01 to 1"},
    {"memory_fraction = inf", "kv", 19, "kv.memory_fraction", "inf", "a number from 0.01 to 1"},
    {"memory_fraction = 1.5", "kv", 19, "kv.memory_fraction", "1.5", "a number from 0.01 to 1"},
    {"dtype = \"fp16\"", "kv", 9, "kv.dtype", "\"fp16\"", "\"auto\", \"f32\", \"f16\" or \"bf16\""},
    {"dtype = 16", "kv", 9, "kv.dtype", "16", "\"auto\", \"f32\", \"f16\" or \"bf16\""},
    {"enabled = 1", "metrics", 11, "metrics.enabled", "1", "true or false"},
    {"timeout_ms = 5", "template", 14, "template.timeout_ms", "5", "an integer from 10 to 600000 (ms)"},
    {"listen = \"localhost\"", "server", 10, "server.listen", "\"localhost\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \":8080\"", "server", 10, "server.listen", "\":8080\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \"127.0.0.1:65536\"", "server", 10, "server.listen", "\"127.0.0.1:65536\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \"127.0.0.1:-1\"", "server", 10, "server.listen", "\"127.0.0.1:-1\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \"::1:80\"", "server", 10, "server.listen", "\"::1:80\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \"[::1:80\"", "server", 10, "server.listen", "\"[::1:80\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"listen = \"a b:80\"", "server", 10, "server.listen", "\"a b:80\"", "a string \"host:port\" with a port from 0 to 65535"},
    {"allowed_origins = [\"example.org\"]", "server", 19, "server.allowed_origins", "[\"example.org\"]", "a list of strings \"scheme://host[:port]\""},
    {"allowed_origins = [\"https://a/b\"]", "server", 19, "server.allowed_origins", "[\"https://a/b\"]", "a list of strings \"scheme://host[:port]\""},
    {"allowed_origins = \"https://a\"", "server", 19, "server.allowed_origins", "\"https://a\"", "a list of strings \"scheme://host[:port]\""},
    {"allowed_origins = [\"https://a\", 3]", "server", 19, "server.allowed_origins", "a list with an integer in place 2", "a list of strings \"scheme://host[:port]\""},
    {"folders = [\"plugins\"]", "plugins", 11, "plugins.folders", "[\"plugins\"]", "a list of paths, at least one, each absolute or beginning with $ORIGIN"},
    {"folders = [\".\"]", "plugins", 11, "plugins.folders", "[\".\"]", "a list of paths, at least one, each absolute or beginning with $ORIGIN"},
    {"folders = [\"$ORIGINAL/x\"]", "plugins", 11, "plugins.folders", "[\"$ORIGINAL/x\"]", "a list of paths, at least one, each absolute or beginning with $ORIGIN"},
    {"folders = []", "plugins", 11, "plugins.folders", "[]", "a list of paths, at least one, each absolute or beginning with $ORIGIN"},
    {"device = []", "backends", 10, "backends.device", "[]", "a plugin id, or a list of them in order of preference"},
    {"device = \"../cpu\"", "backends", 10, "backends.device", "\"../cpu\"", "a plugin id, or a list of them in order of preference"},
    {"device = [\"cpu\", \"cpu\"]", "backends", 10, "backends.device", "[\"cpu\", \"cpu\"]", "a plugin id, or a list of them in order of preference"},
    {"quant = \"ggml\"", "backends", 9, "backends.quant", "\"ggml\"", "a list of plugin ids, at least one"},
    {"attention = \"cpu-flash\"", "backends", 13, "backends.attention", "a string", "a table: [backends.attention]"},
    {"options = 3", "backends", 11, "backends.options", "an integer", "a table"},
    {"options = {cpu = 3}", "backends", 18, "backends.options.cpu", "an integer", "a table of options"},
    {"options = {\"a/b\" = {}}", "backends", 12, "backends.options.\"a/b\"", "no plugin id", "letters, digits, '-', '_' and '.', at most 64 of them"},
    {"options = {cpu = {x = [1]}}", "backends", 23, "backends.options.cpu.x", "a list with an integer in place 1", "a string, an integer, a float, true or false"},
    {"options = {cpu = {x = \"\\u0007\"}}", "backends", 23, "backends.options.cpu.x", "\"\\u0007\"", "text without control characters"},
    {"options = {cpu = {\"x y\" = 1}}", "backends", 19, "backends.options.cpu.\"x y\"", "no option name", "letters, digits, '-', '_' and '.', at most 64 of them"},
    {"alias = \"a\\nb\"", "model", 9, "model.alias", "\"a\\u000ab\"", "a string"},
    {"path = \"\"", "model", 8, "model.path", "\"\"", "a string with the path of a file"},
    {"path = \"a\\u0000b\"", "model", 8, "model.path", "\"a\\u0000b\"", "a string with the path of a file"},
    {"block_sise = 32", "kv", 1, "kv.block_sise", "an unknown key", "one of block_size, max_tokens, memory_bytes, memory_fraction, dtype; did you mean block_size?"},
    {"max_num_seqs = 8", "kv", 1, "kv.max_num_seqs", "an unknown key", "one of block_size, max_tokens, memory_bytes, memory_fraction, dtype; did you mean scheduler.max_num_seqs?"},
    {"qwertyuiop = 1", "engine", 1, "engine.qwertyuiop", "an unknown key", "one of threads, capture_graphs"},
    {"\"x\\u001b\" = 1", "engine", 1, "engine.\"x\\u001b\"", "an unknown key", "one of threads, capture_graphs"},
    {"atention = 1", "backends", 1, "backends.atention", "an unknown key", "one of device, device_ordinal, quant, attention, options; did you mean attention?"},
};
// clang-format on

TEST(Mistakes, EachIsReportedWithPositionKeyFoundAndExpected) {
    for (const Wrong& wrong : kWrong) {
        SCOPED_TRACE(wrong.line);
        const bool is_model = std::string_view{wrong.section} == "model";
        const std::string first = is_model ? "" : "model.path = '/m.gguf'";
        const auto list = mistakes_of(first + "\n[" + wrong.section + "]\n" + wrong.line +
                                      (is_model && std::string_view{wrong.key} != "model.path"
                                           ? "\npath = '/m.gguf'\n"
                                           : "\n"));
        ASSERT_EQ(list.size(), 1U);
        EXPECT_EQ(list[0].source, "/etc/assay/a.toml");
        EXPECT_EQ(list[0].line, 3);
        EXPECT_EQ(list[0].column, wrong.column);
        EXPECT_EQ(list[0].key, wrong.key);
        EXPECT_EQ(list[0].found, wrong.found);
        EXPECT_EQ(list[0].expected, wrong.expected);
    }
}

TEST(Mistakes, AllAreReportedAtOnceInTheOrderOfTheFile) {
    Environment environment = test_environment();
    environment.variables["ASSAY_KV_BLOCKSIZE"] = "16";
    environment.variables["ASSAY_ENGINE_THREADS"] = "many";
    try {
        (void)parse_text(R"([sampling]
temperature = 9
[kv]
block_size = 7
blok_size = 8
[server]
listen = 1
[nonsense]
a = 1
)",
                         environment);
        FAIL() << "accepted";
    } catch (const base::StartError& error) {
        EXPECT_EQ(error.code(), base::ExitCode::config);
        EXPECT_STREQ(
            error.what(),
            "/etc/assay/a.toml:2:15: sampling.temperature: found 9, expected a number from 0 to 2 "
            "(the first of 8 mistakes)\n"
            "/etc/assay/a.toml:4:14: kv.block_size: found 7, expected an integer from 1 to 1024, a "
            "power of two (tokens)\n"
            "/etc/assay/a.toml:5:1: kv.blok_size: found an unknown key, expected one of block_size, "
            "max_tokens, memory_bytes, memory_fraction, dtype; did you mean block_size?\n"
            "/etc/assay/a.toml:7:10: server.listen: found 1, expected a string \"host:port\" with a "
            "port from 0 to 65535\n"
            "/etc/assay/a.toml:8:2: nonsense: found an unknown key, expected one of server, tls, model, "
            "plugins, backends, kv, scheduler, engine, sampling, log, metrics, assay, template\n"
            "environment: ASSAY_ENGINE_THREADS: found \"many\", expected an integer from 0 to 1024 "
            "(threads)\n"
            "environment: ASSAY_KV_BLOCKSIZE: found an unknown variable, expected a known one; did "
            "you mean ASSAY_KV_BLOCK_SIZE?\n"
            "/etc/assay/a.toml: model.path: found nothing, expected the path of a GGUF file");
    }
}

TEST(Mistakes, SyntaxErrorHasItsPosition) {
    const auto list = mistakes_of("[kv]\nblock_size = = 3\n");
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].line, 2);
    EXPECT_EQ(list[0].column, 14);
    EXPECT_NE(list[0].found.find("no valid TOML"), std::string::npos);
    EXPECT_EQ(mistakes_of("a = 1\na = 2\n").size(), 1U);
    EXPECT_EQ(mistakes_of("a = \"\xff\xfe\"\n").size(), 1U);
    // Texts that toml++ itself asserts on.
    for (const std::string& text : {std::string(100'000, '['), std::string{"[[[kv]]]"}}) {
        const auto refused = mistakes_of("[kv]\n\n" + text + "\n[kv]\n");
        ASSERT_EQ(refused.size(), 1U);
        EXPECT_EQ(refused[0].line, 3);
    }
}

TEST(Mistakes, QuotedKeyWithADotIsNotAPath) {
    const auto list = mistakes_of(with_model("\"kv.block_size\" = 8\n"));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].key, "\"kv.block_size\"");
}

TEST(Mistakes, SectionGivenAsValueOrListIsRefused) {
    auto list = mistakes_of(with_model("kv = 3\n"));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].text(),
              "/etc/assay/a.toml:2:6: kv: found an integer, expected a table: [kv]");
    list = mistakes_of(with_model("[[kv]]\nblock_size = 8\n"));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].key, "kv");
}

TEST(Mistakes, UnknownAndMalformedVariables) {
    const auto with = [](const std::string& name, const std::string& value) {
        Environment environment = test_environment();
        environment.variables[name] = value;
        return mistakes_of(with_model(""), environment);
    };
    EXPECT_TRUE(with("ASSAYD_X", "1").empty());
    EXPECT_TRUE(with("MY_ASSAY_X", "1").empty());
    EXPECT_TRUE(with("ASSAY_KV_BLOCK_SIZE", "64").empty());
    EXPECT_EQ(with("ASSAY_", "1").size(), 1U);
    EXPECT_EQ(with("ASSAY_COMPLETELY_DIFFERENT", "1").at(0).expected,
              "ASSAY_<SECTION>_<KEY> of a key of the configuration file");
    EXPECT_EQ(with("assay_kv_block_size", "64").size(), 0U);
    EXPECT_EQ(with("ASSAY_kv_block_size", "64").size(), 1U);
    EXPECT_EQ(with("ASSAY_KV_BLOCK_SIZE", "64 ").at(0).found, "\"64 \"");
    EXPECT_EQ(with("ASSAY_KV_BLOCK_SIZE", "").at(0).found, "\"\"");
    EXPECT_EQ(with("ASSAY_KV_BLOCK_SIZE", "99999999999999999999").size(), 1U);
    EXPECT_EQ(with("ASSAY_METRICS_ENABLED", "yes").size(), 1U);
    EXPECT_EQ(with("ASSAY_MODEL_ALIAS", "\xff").size(), 1U);
    EXPECT_EQ(with("ASSAY_SAMPLING_TEMPERATURE", "nan").size(), 1U);
    EXPECT_EQ(with("ASSAY_BACKENDS_DEVICE", "cpu,,cuda").size(), 1U);
    EXPECT_TRUE(with("ASSAY_SERVER_ALLOWED_ORIGINS", "").empty());
}

TEST(Mistakes, ValuesThatDoNotFitTogether) {
    auto list = mistakes_of(with_model("scheduler.max_num_seqs = 600\n"));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].key, "scheduler.max_num_batched_tokens");
    EXPECT_EQ(list[0].found, "512");

    list = mistakes_of(with_model("\nkv.max_tokens = 31\n"));
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].line, 3);
    EXPECT_EQ(list[0].key, "kv.max_tokens");
    EXPECT_TRUE(mistakes_of(with_model("kv.max_tokens = 32\n")).empty());
}

TEST(Mistakes, ListeningBeyondLoopbackTakesAKeyFile) {
    for (const char* host : {"0.0.0.0:80", "[::]:80", "192.168.0.1:80", "example.org:80",
                             "127.evil.org:80"}) {
        const std::string listen = "[server]\nlisten = '" + std::string{host} + "'\n";
        const auto list = mistakes_of(with_model(listen));
        ASSERT_EQ(list.size(), 1U) << host;
        EXPECT_EQ(list[0].key, "server.listen");
        EXPECT_TRUE(mistakes_of(with_model(listen + "api_keys_file = 'keys'\n")).empty()) << host;
    }
    for (const char* host : {"localhost:80", "127.0.0.2:80", "[::1]:80"}) {
        EXPECT_TRUE(mistakes_of(with_model("server.listen = '" + std::string{host} + "'\n")).empty())
            << host;
    }
}

TEST(Mistakes, WithoutAnExecutableFolderOriginIsRefused) {
    Environment environment = test_environment();
    environment.executable_folder.clear();
    const auto list = mistakes_of(with_model("plugins.folders = ['$ORIGIN/../x']"), environment);
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0].key, "plugins.folders");
    EXPECT_EQ(list[1].key, "plugins.folders");
}

TEST(Nearest, CountsEditsAndGivesUpWhenFar) {
    const std::vector<std::string> words{"block_size", "max_tokens", "dtype"};
    EXPECT_EQ(nearest("block_size", words), "block_size");
    EXPECT_EQ(nearest("blcok_size", words), "block_size");
    EXPECT_EQ(nearest("maxtokens", words), "max_tokens");
    EXPECT_EQ(nearest("dtyp", words), "dtype");
    EXPECT_EQ(nearest("temperature", words), "");
    EXPECT_EQ(nearest("", words), "");
    EXPECT_EQ(nearest("x", {}), "");
}

TEST(TomlQuoted, EscapesAndShortens) {
    EXPECT_EQ(toml_quoted("a\"b\\c\n\x7f"), "\"a\\\"b\\\\c\\u000a\\u007f\"");
    EXPECT_EQ(toml_quoted("ü€"), "\"ü€\"");
    EXPECT_EQ(toml_quoted("aü", 2), "\"a\"... (3 bytes)");
    EXPECT_EQ(toml_quoted(std::string(200, 'x')).size(), 82U + 15U);
}

}  // namespace
}  // namespace config
