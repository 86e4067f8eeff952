#include "daemon/base/check.hpp"
#include "daemon/base/error.hpp"
#include "daemon/base/metadata.hpp"
#include "daemon/base/service_state.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace base {
namespace {

TEST(Error, EveryErrcHasWordsOfItsOwn) {
    std::set<std::string> words;
    for (int value = static_cast<int>(Errc::queue_full); value <= static_cast<int>(Errc::deadline);
         ++value) {
        const std::string text = make_error_code(static_cast<Errc>(value)).message();
        EXPECT_EQ(text.find("unknown"), std::string::npos) << value;
        EXPECT_TRUE(words.insert(text).second) << text;
    }
    EXPECT_NE(make_error_code(static_cast<Errc>(999)).message().find("999"), std::string::npos);
}

TEST(Error, AnErrcIsAnErrorCodeAndAResult) {
    const boost::system::error_code code = Errc::draining;
    EXPECT_STREQ(code.category().name(), "assay");
    const Result<int> failed = Errc::draining;
    ASSERT_TRUE(failed.has_error());
    EXPECT_EQ(failed.error(), code);
}

TEST(Error, StartErrorsCarryTheirExitCode) {
    EXPECT_EQ(ConfigError{"x"}.code(), ExitCode::config);
    EXPECT_EQ(ModelError{"x"}.code(), ExitCode::bad_model);
    EXPECT_EQ(AssayError{"x"}.code(), ExitCode::assay);
    EXPECT_EQ(static_cast<int>(ExitCode::config), 78);
    EXPECT_EQ(static_cast<int>(ExitCode::bad_model), 65);
    EXPECT_EQ(static_cast<int>(ExitCode::assay), 70);
    EXPECT_EQ(static_cast<int>(ExitCode::usage), 64);
}

TEST(Metadata, GivesValuesOfTheTypeAskedFor) {
    Metadata metadata;
    metadata.set("i", std::int64_t{3});
    metadata.set("f", 2.5);
    metadata.set("s", std::string{"x"});
    metadata.set("bools", std::vector<bool>{true, false});
    EXPECT_EQ(metadata.get_int("i"), 3);
    EXPECT_EQ(metadata.get_float("f"), 2.5);
    EXPECT_EQ(metadata.get_float("i"), 3.0);  // an integer serves as a float
    EXPECT_EQ(metadata.get_string("s"), "x");
    EXPECT_EQ(metadata.find_ints("bools"), (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(metadata.find_int("nothing"), std::nullopt);
    EXPECT_TRUE(metadata.contains("i"));
}

TEST(Metadata, AWrongTypeNamesKeyExpectedAndFound) {
    Metadata metadata;
    metadata.set("llama.block_count", std::string{"four"});
    metadata.set("f", 2.5);
    try {
        (void)metadata.find_int("llama.block_count");
        FAIL() << "no error";
    } catch (const ModelError& error) {
        const std::string what = error.what();
        for (const char* word : {"llama.block_count", "integer", "string"})
            EXPECT_NE(what.find(word), std::string::npos) << what;
    }
    EXPECT_THROW((void)metadata.find_int("f"), ModelError);  // never the other way round
    EXPECT_THROW((void)metadata.get_string("nothing"), ModelError);
}

TEST(ServiceState, WhoDrainsBecomesNothingElse) {
    using Phase = ServiceState::Phase;
    ServiceState state;
    EXPECT_TRUE(state.advance(Phase::starting, Phase::starting, "loading"));
    EXPECT_EQ(state.reason(), "loading");
    state.set(Phase::draining, "draining");
    EXPECT_FALSE(state.advance(Phase::starting, Phase::ready, "ready"));
    state.set(Phase::failed, "engine: lost");
    EXPECT_EQ(state.phase(), Phase::draining);
    EXPECT_EQ(state.reason(), "draining");
}

TEST(ServiceState, AFailureBeforeTheEndOfTheStartStands) {
    using Phase = ServiceState::Phase;
    ServiceState state;
    state.set(Phase::failed, "engine: lost");
    EXPECT_FALSE(state.advance(Phase::starting, Phase::ready, "ready"));
    EXPECT_FALSE(state.is_ready());
}

TEST(ServiceState, ReasonAndPhaseAreReadWhileTheyChange) {
    ServiceState state;
    EXPECT_EQ(state.phase(), ServiceState::Phase::starting);
    EXPECT_FALSE(state.reason().empty());
    std::thread prover{[&] {
        for (int i = 0; i < 1000; ++i)
            state.set(ServiceState::Phase::starting, "assay: level " + std::to_string(i));
        state.set(ServiceState::Phase::ready, "");
    }};
    while (!state.is_ready()) {
        const std::string reason = state.reason();
        EXPECT_TRUE(reason.empty() || reason == "starting" || reason.starts_with("assay: level "));
    }
    prover.join();
}

TEST(CheckDeathTest, ABrokenInvariantAbortsWithItsPlace) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(CHECK(1 + 1 == 3), "base_test.cpp.*broken invariant: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace base
