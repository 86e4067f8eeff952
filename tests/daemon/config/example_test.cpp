#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "daemon/config/assign.hpp"
#include "daemon/config/keys.hpp"
#include "tests/daemon/config/support.hpp"

namespace config {
namespace {

const std::string kExample = std::string{ASSAY_SOURCE_DIR} + "/conf/assayd.toml";

std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream{file}.rdbuf();
    return text.str();
}

TEST(Example, LoadsAndNamesTheDemoModel) {
    const Config config = load(kExample, test_environment());
    EXPECT_TRUE(std::filesystem::exists(config.model.path)) << config.model.path;
    EXPECT_EQ(config.plugins.folders, std::vector<std::filesystem::path>{"/opt/assay/plugins"});
}

TEST(Example, SetsEveryKeyToItsDefault) {
    const Config config = load(kExample, test_environment());
    const Config defaults = parse_text(with_model(""));
    for (const Key& key : keys()) {
        const auto origin = config.origins.find(key.full_name());
        EXPECT_NE(origin, config.origins.end()) << key.full_name() << " is not in the example";
        if (key.full_name() == "model.path") continue;
        EXPECT_EQ(effective(key, config), effective(key, defaults)) << key.full_name();
    }
    EXPECT_EQ(config.origins.size(), keys().size());
}

// Any bytes at all: parse either returns a configuration or throws Mistakes with positions.
TEST(Example, AnyMutationIsReadOrReported) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random{seed};
    const std::string example = text_of(kExample);
    ASSERT_GT(example.size(), 1000U);
    const std::string_view pieces[] = {"[", "]]", "=", "\"\"\"", "'", "\n", "{", "#", "\\u0000",
                                       "\xff", "1e999", "nan", "-", "0x", ".", "[[kv]]\n",
                                       "[backends.options.x]\n", "1979-05-27T07:32:00Z"};
    int num_accepted = 0;
    int num_refused = 0;
    for (int round = 0; round < 600; ++round) {
        std::string text = example;
        for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
            const std::size_t at = random() % text.size();  // never empty, see below
            switch (random() % 4) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text.erase(at, 1 + random() % 8) += '\n'; break;
                case 2: text.insert(at, pieces[random() % std::size(pieces)]); break;
                default: text.resize(at + 1); break;
            }
        }
        try {
            const Config config = parse_text(text);
            EXPECT_FALSE(describe(config).empty());
            ++num_accepted;
        } catch (const Mistakes& mistakes) {
            ASSERT_FALSE(mistakes.list().empty());
            for (const Mistake& mistake : mistakes.list()) {
                EXPECT_FALSE(mistake.expected.empty());
                EXPECT_EQ(mistake.text().find('\n'), std::string::npos) << mistake.text();
            }
            ++num_refused;
        }
    }
    EXPECT_GT(num_accepted, 0);  // most of the example is comments
    EXPECT_GT(num_refused, 0);
}

}  // namespace
}  // namespace config
