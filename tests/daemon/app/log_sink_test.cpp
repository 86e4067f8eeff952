#include "daemon/app/log_sink.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/error.hpp"

namespace app {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
constexpr milliseconds kLong{10'000};

class LogSinkTest : public testing::Test {
protected:
    LogSinkTest() {
        std::string name = (fs::temp_directory_path() / "assay-log-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~LogSinkTest() override { fs::remove_all(folder_); }
    static std::string text_of(const fs::path& file) {
        std::ostringstream text;
        text << std::ifstream{file}.rdbuf();
        return text.str();
    }
    fs::path folder_;
};

TEST_F(LogSinkTest, WritesLinesInOrderAndAppends) {
    const fs::path file = folder_ / "log";
    { std::ofstream{file} << "before\n"; }
    {
        LogSink sink{file};
        for (int i = 0; i < 1000; ++i) sink.write(std::to_string(i));
        sink.flush(kLong);
    }
    std::string expected = "before\n";
    for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + "\n";
    EXPECT_EQ(text_of(file), expected);
}

TEST_F(LogSinkTest, AFileThatCannotBeOpenedSaysWhy) {
    try {
        const LogSink sink{folder_ / "absent" / "log"};
        FAIL();
    } catch (const base::ConfigError& e) {
        EXPECT_NE(std::string{e.what()}.find("No such file"), std::string::npos) << e.what();
    }
}

TEST_F(LogSinkTest, OpensAnewWhatWasMovedAway) {
    const fs::path file = folder_ / "log";
    LogSink sink{file};
    sink.write("one");
    sink.flush(kLong);
    fs::rename(file, folder_ / "log.1");
    sink.write("two");  // still where it was
    sink.flush(kLong);
    sink.reopen();
    sink.write("three");
    sink.flush(kLong);
    EXPECT_EQ(text_of(folder_ / "log.1"), "one\ntwo\n");
    EXPECT_EQ(text_of(file), "three\n");
}

// A pipe that nobody reads holds up the sink's thread; those who log go on, the oldest lines are dropped, and
// the next that is written says how many.
TEST_F(LogSinkTest, WhoLogsNeverWaitsAndTheOldestLinesGoFirst) {
    const fs::path pipe = folder_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(reader, 0);
    std::string got;
    {
        LogSink sink{pipe, [](std::uint64_t n) { return "dropped " + std::to_string(n); }, 100'000};
        const std::string filler(1000, '.');
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 20'000; ++i) sink.write(std::to_string(i) + filler);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{5});
        EXPECT_GT(sink.num_dropped(), 10'000U);
        std::string buffer(1 << 16, '\0');
        const auto until = std::chrono::steady_clock::now() + kLong;
        while (got.find("\n19999.") == std::string::npos && std::chrono::steady_clock::now() < until) {
            const ssize_t n = ::read(reader, buffer.data(), buffer.size());
            if (n > 0) got.append(buffer, 0, static_cast<std::size_t>(n));
            else std::this_thread::sleep_for(milliseconds{1});
        }
        std::uint64_t told = 0;
        for (std::size_t at = 0; (at = got.find("\ndropped ", at)) != std::string::npos; ++at)
            told += std::stoull(got.substr(at + 9));
        EXPECT_EQ(told, sink.num_dropped());
    }
    EXPECT_TRUE(got.starts_with("0."));
    EXPECT_NE(got.find("\n19999."), std::string::npos);
    ::close(reader);
}

TEST_F(LogSinkTest, AFullDiskCostsLinesAndIsSaidOnce) {
    if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
    testing::internal::CaptureStderr();
    {
        LogSink sink{"/dev/full"};
        for (int i = 0; i < 5; ++i) {
            sink.write("line");
            sink.flush(kLong);
        }
        EXPECT_EQ(sink.num_dropped(), 5U);
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("/dev/full cannot be written: No space left"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), said.size() - 1) << "one line: " << said;
}

TEST_F(LogSinkTest, ManyThreadsLoseNothing) {
    const fs::path file = folder_ / "log";
    LogSink sink{file};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 500; ++i) sink.write("x");
        });
    for (std::thread& thread : threads) thread.join();
    sink.flush(kLong);
    EXPECT_EQ(text_of(file).size(), 8U * 500U * 2U);
    EXPECT_EQ(sink.num_dropped(), 0U);
}

}  // namespace
}  // namespace app
