// The helper threads, and what the server does on them.
#include "daemon/server/helper.hpp"

#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using server::Helper;
using support::eventually;
using support::HttpClient;
using support::TestServer;
using support::WsClient;

struct HelperTest : testing::Test {
    /// Runs the io context until `condition` holds.
    template <class Condition>
    bool run_until(Condition condition) {
        return eventually([&] {
            io.restart();
            io.poll();
            return condition();
        });
    }
    void fail(const std::string& why) { errors.push_back(why); }

    asio::io_context io;
    std::vector<std::string> errors;
};

TEST_F(HelperTest, RunsAsManyJobsAtOnceAsItHasThreads) {
    Helper helper{io, {.num_threads = 3}};
    std::atomic<int> num_running{0};
    int num_done = 0;
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(helper.run(
            1,
            [&]() -> std::function<void()> {
                ++num_running;
                while (num_running < 3) std::this_thread::yield();  // for ever, were there fewer
                return [&] { ++num_done; };
            },
            [this](const std::string& why) { fail(why); }));
    }
    EXPECT_TRUE(run_until([&] { return num_done == 3; }));
}

TEST_F(HelperTest, RefusesMoreThanItMayHold) {
    std::atomic<bool> is_held{true};
    Helper helper{io, {.num_threads = 1, .max_jobs = 3, .max_bytes = 100}};
    int num_done = 0;
    const auto run = [&](std::size_t bytes) {
        return helper.run(
            bytes,
            [&]() -> std::function<void()> {
                while (is_held) std::this_thread::yield();
                return [&] { ++num_done; };
            },
            [this](const std::string& why) { fail(why); });
    };
    EXPECT_TRUE(run(60));
    EXPECT_FALSE(run(41));
    EXPECT_TRUE(run(40));
    EXPECT_TRUE(run(0));
    EXPECT_FALSE(run(0));  // the fourth job
    is_held = false;
    EXPECT_TRUE(run_until([&] { return num_done == 3; }));
    EXPECT_TRUE(run(1000));  // alone, whatever its size
    EXPECT_TRUE(run_until([&] { return num_done == 4; }));
}

TEST_F(HelperTest, SurvivesWhateverIsThrown) {
    Helper helper{io, {.num_threads = 1}};
    const auto on_error = [this](const std::string& why) { fail(why); };
    EXPECT_TRUE(helper.run(1, []() -> std::function<void()> { throw std::bad_alloc{}; }, on_error));
    EXPECT_TRUE(helper.run(1, []() -> std::function<void()> { throw 17; }, on_error));
    EXPECT_TRUE(run_until([&] { return errors.size() == 2; }));
    EXPECT_EQ(errors[0], std::bad_alloc{}.what());
}

// ---- on a server -------------------------------------------------------------------------------

std::string create(std::string_view fields) {
    return R"({"type":"response.create","model":"demo-1b",)" + std::string{fields} + "}";
}

TEST(Preparation, OfTooManyRequestsIsRefusedWith503) {
    server::Options options;
    options.helper = {.num_threads = 1, .max_jobs = 2};
    TestServer server{{.options = std::move(options), .words = {"ok"}}};
    server.codec->holds_renders = true;
    WsClient client{server.port()};
    for (int i = 0; i < 3; ++i)
        client.send(create(R"("input":"x","stream_id":"l)" + std::to_string(i) + '"'));
    const json::object refused = client.next();
    EXPECT_EQ(refused.at("status").as_int64(), 503);
    EXPECT_EQ(refused.at("stream_id").as_string(), "l2");
    HttpClient http{server.port()};
    EXPECT_EQ(http.post("/v1/completions", R"({"model":"demo-1b","prompt":"x"})").status, 503);
    EXPECT_EQ(http.post("/tokenize", R"({"prompt":"x"})").status, 503);
    server.codec->holds_renders = false;
    for (int done = 0; done < 2;) done += support::is_terminal(client.next());
}

TEST(Preparation, ThatThrowsIsAnInternalErrorAndIsLogged) {
    TestServer server{{.words = {"ok"}}};
    WsClient client{server.port()};
    const auto events = client.turn(create(R"("input":"throw!")"));
    EXPECT_EQ(events.back().at("status").as_int64(), 500);
    EXPECT_EQ(server.problems().size(), 1U);
    EXPECT_EQ(client.turn(create(R"("input":"hi")")).back().at("type").as_string(),
              "response.completed");
}

TEST(Preparation, ATemplateThatHangsIsTheServersFaultOnEverySurface) {
    TestServer server;
    WsClient client{server.port()};
    const auto events = client.turn(create(R"("input":"hang!")"));
    EXPECT_EQ(events.back().at("status").as_int64(), 500);
    EXPECT_EQ(json::serialize(events.back()).find("17"), std::string::npos);
    const auto chat =
        HttpClient{server.port()}.post("/v1/chat/completions",
                                       R"({"model":"demo-1b","messages":[{"role":"user","content":"hang!"}]})");
    EXPECT_EQ(chat.status, 500);
    const auto problems = server.problems();
    ASSERT_EQ(problems.size(), 2U);
    for (const std::string& line : problems)
        EXPECT_NE(line.find("worker 17 was killed"), std::string::npos) << line;
}

/// 400 turns, of which some ten fit: rendered a number of times that is like the logarithm of 400.
TEST(Preparation, ShortensALongConversationInFewRenders) {
    TestServer server{{.words = {"ok"}, .context_length = 512}};
    server.codec->insists_on_user = true;
    std::string items;
    for (int i = 0; i < 400; ++i) {
        items += (i == 0 ? "" : ",") + std::string{R"({"role":"user","content":"question )"} +
                 std::to_string(i) + R"("},{"role":"assistant","content":"answer"})";
    }
    items += R"(,{"role":"user","content":"last"})";
    WsClient client{server.port()};
    const auto events = client.turn(create(R"("truncation":"auto","input":[)" + items + "]"));
    EXPECT_EQ(events.back().at("type").as_string(), "response.completed")
        << json::serialize(events.back());
    const auto prompt = server.engine->requests().at(0).prompt;
    EXPECT_LE(prompt.size(), 512U - 64);  // an eighth is left to the reply
    EXPECT_GT(prompt.size(), 512U - 64 - 50);  // and no more is dropped than has to be
    EXPECT_LE(server.codec->num_renders, 11);
}

TEST(Preparation, StopsWhenNobodyWaitsForIt) {
    server::Options options;
    options.helper.num_threads = 1;
    TestServer server{{.options = std::move(options), .words = {"ok"}, .context_length = 64}};
    server.codec->holds_renders = true;
    std::string items;
    for (int i = 0; i < 64; ++i) items += R"({"role":"user","content":"question"},)";
    {
        WsClient client{server.port()};
        client.send(create(R"("truncation":"auto","input":[)" + items +
                           R"({"role":"user","content":"last"}])"));
        client.send(create(R"("input":"behind","stream_id":"b")"));
        ASSERT_TRUE(eventually([&] {
            return server.codec->num_renders == 1 &&
                   server.metric(R"(assay_ws_messages_total{dir="in"})") == "2";
        }));
        client.reset();
    }
    ASSERT_TRUE(eventually([&] { return server.access().size() == 1; }));
    server.codec->holds_renders = false;
    WsClient other{server.port()};
    EXPECT_EQ(other.turn(create(R"("input":"hi")")).back().at("type").as_string(),
              "response.completed");
    EXPECT_EQ(server.codec->num_renders, 2);  // the one that had begun, and the other's
}

}  // namespace
