// Clients that leave or do not read, a daemon that is not ready or leaves.
#include "daemon/server/keys.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace json = boost::json;
using support::eventually;
using support::FakeCodec;
using support::FakeEngine;
using support::HttpClient;
using support::TestServer;
using support::WsClient;
using namespace std::chrono_literals;

constexpr std::int32_t kWord = FakeCodec::kFirstWord;
constexpr std::string_view kHi = R"({"type":"response.create","model":"demo-1b","input":"hi"})";
constexpr std::string_view kStream =
    R"({"model":"demo-1b","prompt":"x","stream":true,"max_tokens":4000})";

FakeEngine::Script endless(const base::Request&) {
    return {.tokens = {kWord}, .loops = true};
}
FakeEngine::Script held(const base::Request&) {
    return {.tokens = {kWord}, .hold = true};
}

void send_post(HttpClient& client, std::string_view path, std::string_view body) {
    client.send("POST " + std::string{path} + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + std::string{body});
}

// ---- clients that leave ------------------------------------------------------------------------

TEST(Leaving, WebSocketCloseCancelsAtTheEngine) {
    TestServer server{{.words = {"a"}, .script = endless}};
    server.engine->set_step_time(1ms);
    WsClient client{server.port()};
    client.send(kHi);
    while (client.next().at("type").as_string() != "response.output_text.delta") {
    }
    client.close();
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_EQ(server.engine->num_cancelled(), 1U);
    EXPECT_TRUE(eventually([&] { return server.access().size() == 1; }));
    EXPECT_EQ(server.access()[0].close_code, 1000);
    EXPECT_EQ(server.metric("assay_ws_streams"), "0");
}

TEST(Leaving, WebSocketResetCancelsAtTheEngine) {
    TestServer server{{.words = {"a"}, .script = endless}};
    server.engine->set_step_time(1ms);
    WsClient client{server.port()};
    client.send(kHi);
    while (client.next().at("type").as_string() != "response.output_text.delta") {
    }
    client.reset();
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_TRUE(eventually([&] { return server.access().size() == 1; }));
    EXPECT_EQ(server.access()[0].close_code, 1006);
}

TEST(Leaving, HttpClientThatWaitsForAWholeAnswerIsMissed) {
    TestServer server{{.words = {"a"}, .script = held}};
    for (const bool with_reset : {false, true}) {
        auto client = std::make_unique<HttpClient>(server.port());
        send_post(*client, "/v1/completions", R"({"model":"demo-1b","prompt":"x"})");
        ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
        if (with_reset) client->reset();
        client.reset();
        EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    }
    EXPECT_EQ(server.engine->num_cancelled(), 2U);
}

TEST(Leaving, HttpStreamThatIsClosedCancelsAllItsChoices) {
    TestServer server{{.words = {"a"}, .script = endless}};
    server.engine->set_step_time(1ms);
    HttpClient client{server.port()};
    send_post(client, "/v1/completions",
              R"({"model":"demo-1b","prompt":["x","y"],"n":2,"stream":true,"max_tokens":4000})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 4; }));
    client.read_some();
    client.reset();
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
}

/// Some clients close the direction that they need no more.
TEST(Leaving, WhoClosesOneDirectionOnlyGetsItsAnswer) {
    for (const std::string_view path : {"whole", "stream", "old"}) {
        SCOPED_TRACE(path);
        TestServer server{{.words = {"one", " two"}, .script = [](const base::Request&) {
                               return FakeEngine::Script{.tokens = {kWord, kWord + 1}, .hold = true};
                           }}};
        HttpClient client{server.port()};
        const std::string body = path == "stream"
                                     ? R"({"model":"demo-1b","prompt":"x","stream":true})"
                                     : R"({"model":"demo-1b","prompt":"x"})";
        client.send("POST /v1/completions HTTP/1." + std::string{path == "old" ? "0" : "1"} +
                    "\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                    "\r\n\r\n" + body);
        client.finish_sending();
        ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
        std::this_thread::sleep_for(100ms);  // the end of what it sends has arrived
        EXPECT_EQ(server.engine->num_live(), 1U);
        server.engine->release();
        const std::string answer = client.read_all();
        EXPECT_NE(answer.find(" 200 OK"), std::string::npos) << answer;
        EXPECT_NE(answer.find(" two"), std::string::npos) << answer;
    }
}

TEST(Leaving, WhoLeavesAStreamThatSaysNothingIsMissed) {
    TestServer server{{.words = {"a"}, .script = held}};
    for (int i = 0; i < 2; ++i) {
        auto client = std::make_unique<HttpClient>(server.port());
        send_post(*client, "/v1/completions", kStream);
        ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
        client.reset();
        EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    }
}

TEST(Leaving, TwoHundredAbortsLeaveNothingBehind) {
    TestServer server{{.words = {"a"}, .script = endless}};
    for (int i = 0; i < 200; ++i) {
        if (i % 2 == 0) {
            WsClient client{server.port()};
            client.send(kHi);
            client.next();
            client.reset();
        } else {
            HttpClient client{server.port()};
            send_post(client, "/v1/completions", kStream);
            client.read_some();
            client.reset();
        }
    }
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_TRUE(eventually([&] {
        return server.metric(R"(assay_connections{transport="ws"})") == "0" &&
               server.metric(R"(assay_connections{transport="http"})") == "0";
    }));
    EXPECT_EQ(server.metric("assay_ws_streams"), "0");
}

TEST(Leaving, HalfTheClientsGoAndTheOthersKeepTheirText) {
    TestServer server{{.words = {"a", "b", "c"}, .script = [](const base::Request&) {
                           FakeEngine::Script script;
                           for (int i = 0; i < 200; ++i) script.tokens.push_back(kWord + i % 3);
                           return script;
                       }}};
    server.engine->set_step_time(500us);
    std::string expected;
    for (int i = 0; i < 200; ++i) expected += static_cast<char>('a' + i % 3);
    std::vector<std::thread> threads;
    std::atomic<int> num_right{0};
    for (int i = 0; i < 16; ++i) {
        threads.emplace_back([&, i] {
            WsClient client{server.port()};
            client.send(kHi);
            if (i % 2 == 0) {
                for (int k = 0; k < 10; ++k) client.next();
                client.reset();
                return;
            }
            const auto events = client.until_terminal();
            if (events.back().empty()) return;
            const json::value& output = events.back().at("response").at("output");
            num_right += output.at(0).at("content").at(0).at("text").as_string() == expected;
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(num_right, 8);
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
}

// ---- clients that do not read ------------------------------------------------------------------

server::Options slow_options() {
    server::Options options;
    options.limits.send_high_bytes = 4096;
    options.limits.write_stall_timeout = 300ms;
    options.limits.close_timeout = 200ms;
    return options;
}

/// Long words, so that the kernel's buffers are soon full.
std::vector<std::string> long_word() {
    return {std::string(20'000, 'w')};
}

TEST(SlowReader, WebSocketThatTakesNothingIsDroppedAndDisturbsNobody) {
    TestServer server{{.options = slow_options(),
                       .words = long_word(),
                       .script = endless,
                       .context_length = 1'000'000}};
    server.engine->set_step_time(200us);
    WsClient slow{server.port(), {}, "/v1/responses", 4096};
    slow.send(kHi);
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
    WsClient other{server.port()};
    const auto events = other.turn(
        R"({"type":"response.create","model":"demo-1b","input":"hi","max_output_tokens":20})");
    EXPECT_EQ(events.back().at("type").as_string(), "response.incomplete");
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_EQ(server.metric(R"(assay_slow_client_actions_total{action="dropped"})"), "1");
}

TEST(SlowReader, HttpStreamThatTakesNothingIsDropped) {
    TestServer server{{.options = slow_options(),
                       .words = long_word(),
                       .script = endless,
                       .context_length = 1'000'000}};
    server.engine->set_step_time(200us);
    HttpClient client{server.port()};
    client.set_receive_buffer(4096);
    send_post(client, "/v1/completions",
              R"({"model":"demo-1b","prompt":"x","stream":true,"max_tokens":900000})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_TRUE(
        eventually([&] { return server.metric(R"(assay_connections{transport="http"})") == "0"; }));
}

/// Lanes that end together say everything three times more: megabytes at once, and all of them due.
TEST(SlowReader, LargeEndsOfManyLanesAllArrive) {
    server::Options options = slow_options();
    options.limits.write_stall_timeout = 60s;
    TestServer server{{.options = std::move(options),
                       .words = {std::string(2000, 'w')},
                       .script = [](const base::Request&) {
                           return FakeEngine::Script{std::vector<std::int32_t>(1000, kWord)};
                       }}};
    WsClient client{server.port(), {}, "/v1/responses", 4096};
    for (int i = 0; i < 6; ++i)
        client.send(R"({"type":"response.create","model":"demo-1b","input":"hi","stream_id":"l)" + std::to_string(i) +
                    R"("})");
    std::this_thread::sleep_for(500ms);  // busy with other things
    for (int i = 0; i < 6; ++i) {
        const auto events = client.until_terminal();
        ASSERT_FALSE(events.back().empty()) << "lane " << i;
        EXPECT_EQ(events.back().at("type").as_string(), "response.completed");
    }
    EXPECT_EQ(server.metric(R"(assay_slow_client_actions_total{action="dropped"})"), "0");
}

TEST(SlowReader, ItsStreamPausesAndGoesOnWhileOthersRun) {
    server::Options options = slow_options();
    options.limits.send_budget_bytes = 200'000;
    options.limits.write_stall_timeout = 60s;
    TestServer server{{.options = std::move(options),
                       .words = long_word(),
                       .script = [](const base::Request&) {
                           return FakeEngine::Script{std::vector<std::int32_t>(1000, kWord)};
                       }}};
    server.engine->set_step_time(3ms);  // the io thread keeps up, under a sanitizer too
    WsClient slow{server.port(), {}, "/v1/responses", 4096};
    slow.send(kHi);
    ASSERT_TRUE(eventually([&] { return server.engine->num_paused() == 1; }));
    // Paused means that nothing more is generated for it, and that others do not notice.
    WsClient other{server.port()};
    const auto events = other.turn(
        R"({"type":"response.create","model":"demo-1b","input":"hi","max_output_tokens":20})");
    EXPECT_EQ(events.back().at("type").as_string(), "response.incomplete");
    // Not at once for good: the kernel's buffers grow for a while.
    EXPECT_TRUE(eventually([&] {
        const std::size_t before = server.engine->num_tokens();
        std::this_thread::sleep_for(50ms);
        return server.engine->num_tokens() == before;
    }));
    EXPECT_EQ(server.engine->num_live(), 1U);
    EXPECT_EQ(server.engine->num_paused(), 1U);
    EXPECT_NE(server.metric(R"(assay_slow_client_actions_total{action="paused"})"), "0");
    EXPECT_NE(server.metric("assay_stream_stalls_total"), "0");

    const auto rest = slow.until_terminal();
    ASSERT_FALSE(rest.back().empty());
    const json::value& output = rest.back().at("response").at("output");
    EXPECT_EQ(output.at(0).at("content").at(0).at("text").as_string().size(), 20'000'000U);
    EXPECT_EQ(server.metric(R"(assay_slow_client_actions_total{action="dropped"})"), "0");
    EXPECT_NE(server.metric("assay_stream_stall_seconds_total"), "0");
}

TEST(SlowReader, AResponseBegunOnAPausedConnectionWaitsToo) {
    server::Options options = slow_options();
    options.limits.send_budget_bytes = 200'000;
    options.limits.write_stall_timeout = 60s;
    TestServer server{{.options = std::move(options),
                       .words = long_word(),
                       .script = endless,
                       .context_length = 1'000'000}};
    server.engine->set_step_time(100us);
    WsClient slow{server.port(), {}, "/v1/responses", 4096};
    slow.send(kHi);
    ASSERT_TRUE(eventually([&] { return server.engine->num_paused() == 1; }));
    slow.send(R"({"type":"response.create","model":"demo-1b","input":"hi","stream_id":"b"})");
    EXPECT_TRUE(eventually([&] { return server.engine->num_paused() == 2; }));
    slow.reset();
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
}

TEST(SlowReader, WhoIsPausedForTooLongIsClosed) {
    server::Options options = slow_options();
    options.limits.write_stall_timeout = 60s;
    options.limits.pause_timeout = 200ms;
    TestServer server{{.options = std::move(options),
                       .words = long_word(),
                       .script = endless,
                       .context_length = 1'000'000}};
    WsClient slow{server.port(), {}, "/v1/responses", 4096};
    slow.send(kHi);
    HttpClient stream{server.port()};
    stream.set_receive_buffer(4096);
    send_post(stream, "/v1/completions",
              R"({"model":"demo-1b","prompt":"x","stream":true,"max_tokens":900000})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_started() == 2; }));
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_TRUE(eventually([&] {
        return server.metric(R"(assay_slow_client_actions_total{action="dropped"})") == "2";
    }));
}

TEST(Streams, AreKeptAliveBeforeTheirFirstToken) {
    server::Options options;
    options.limits.sse_keep_alive = 50ms;
    TestServer server{{.options = std::move(options), .words = {"late"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{kWord}};
                           script.hold = true;
                           return script;
                       }}};
    HttpClient client{server.port()};
    send_post(client, "/v1/completions", R"({"model":"demo-1b","prompt":"x","stream":true})");
    std::string text;
    ASSERT_TRUE(eventually([&] {
        text += client.read_some();
        return text.find(": keep-alive\n\n") != std::string::npos;
    }));
    EXPECT_EQ(text.find("data:"), std::string::npos);
    server.engine->release();
    ASSERT_TRUE(eventually([&] {
        text += client.read_some();
        return text.find("[DONE]") != std::string::npos;
    }));
    EXPECT_NE(text.find("late"), std::string::npos);
}

TEST(Streams, AFailureAfterKeepAliveIsAnEventOfTheStream) {
    server::Options options;
    options.limits.sse_keep_alive = 50ms;
    TestServer server{{.options = std::move(options), .words = {"never"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{kWord}};
                           script.hold = true;
                           script.fail_after = 0;
                           return script;
                       }}};
    HttpClient client{server.port()};
    send_post(client, "/v1/chat/completions",
              R"({"model":"demo-1b","messages":[{"role":"user","content":"x"}],"stream":true})");
    std::string text;
    ASSERT_TRUE(eventually([&] {
        text += client.read_some();
        return text.find(": keep-alive\n\n") != std::string::npos;
    }));
    server.engine->release();
    ASSERT_TRUE(eventually([&] {
        text += client.read_some();
        return text.find("\"error\"") != std::string::npos;
    }));
    EXPECT_EQ(text.find("[DONE]"), std::string::npos);
}

TEST(SlowReader, WhoResumesGetsEveryCharacterInFewerEvents) {
    server::Options options;
    options.limits.send_high_bytes = 4096;
    TestServer server{{.options = std::move(options),
                       .words = {std::string(1000, 'w')},
                       .script = [](const base::Request&) {
                           return FakeEngine::Script{std::vector<std::int32_t>(12'000, kWord)};
                       },
                       .context_length = 20'000}};
    server.engine->set_step_time(200us);  // not done before the first pause arrives
    WsClient client{server.port(), {}, "/v1/responses", 4096};
    client.send(kHi);
    ASSERT_TRUE(eventually([&] { return server.engine->num_paused() == 1; }));
    const auto events = client.until_terminal();
    ASSERT_FALSE(events.back().empty());
    std::size_t num_characters = 0, num_deltas = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(events[i].at("sequence_number").as_int64(), static_cast<std::int64_t>(i));
        if (events[i].at("type").as_string() != "response.output_text.delta") continue;
        ++num_deltas;
        num_characters += events[i].at("delta").as_string().size();
    }
    EXPECT_EQ(num_characters, 12'000'000U);
    EXPECT_LT(num_deltas, 12'000U);
    const json::value& output = events.back().at("response").at("output");
    EXPECT_EQ(output.at(0).at("content").at(0).at("text").as_string().size(), 12'000'000U);
}

// ---- readiness ---------------------------------------------------------------------------------

TEST(Readiness, BeforeTheProofOnlyHealthIsAnswered) {
    TestServer server{{.ready = false}};
    server.state.set(base::ServiceState::Phase::starting, "assay: kernels");
    HttpClient client{server.port()};
    EXPECT_EQ(client.get("/healthz").status, 200);
    const auto ready = client.get("/readyz");
    EXPECT_EQ(ready.status, 503);
    EXPECT_EQ(ready.body, "assay: kernels\n");
    const auto models = client.get("/v1/models");
    EXPECT_EQ(models.status, 503);
    EXPECT_EQ(models.json().at("error").at("code").as_string(), "model_not_ready");
    const auto post = client.post("/v1/completions", R"({"model":"demo-1b","prompt":"x"})");
    EXPECT_EQ(post.status, 503);
    EXPECT_EQ(post.headers.at("retry-after"), "5");
    EXPECT_NE(client.get("/metrics").body.find("\nassay_ready 0\n"), std::string::npos);
    WsClient socket{server.port()};
    EXPECT_FALSE(socket.is_open());
    EXPECT_EQ(socket.handshake().status, 503);
    EXPECT_EQ(server.metric(R"(assay_requests_rejected_total{reason="not_verified"})"), "2");
}

TEST(Readiness, AWatchThatTripsAnswersOpenSocketsWithAnErrorEach) {
    TestServer server{{.words = {"a"}}};
    WsClient client{server.port()};
    EXPECT_EQ(client.turn(kHi).back().at("type").as_string(), "response.completed");
    server.state.set(base::ServiceState::Phase::failed, "watch: repetition");
    const auto refused = client.turn(kHi);
    ASSERT_EQ(refused.size(), 1U);
    EXPECT_EQ(refused[0].at("status").as_int64(), 503);
    EXPECT_EQ(refused[0].at("error").at("code").as_string(), "model_not_ready");
    EXPECT_NE(refused[0].at("error").at("headers").as_object().if_contains("retry-after"), nullptr);
    server.state.set(base::ServiceState::Phase::ready, "");
    EXPECT_EQ(client.turn(kHi).back().at("type").as_string(), "response.completed");
}

// ---- the upgrade -------------------------------------------------------------------------------

TEST(Upgrade, IsRefusedInTheStatedOrder) {
    server::Options options;
    options.api_keys = {server::make_key("alice", "sk-1")};
    TestServer server{{.options = std::move(options)}};
    const support::Headers evil = {{"origin", "https://evil.example"}};
    EXPECT_EQ((WsClient{server.port(), evil, "/v1/nothing"}.handshake().status), 404);
    EXPECT_EQ((WsClient{server.port(), evil}.handshake().status), 403);
    EXPECT_EQ(WsClient{server.port()}.handshake().status, 401);
    const support::Headers key = {{"authorization", "Bearer sk-1"}};
    const auto plain = HttpClient{server.port()}.request("GET", "/v1/responses", "", key);
    EXPECT_EQ(plain.status, 426);
    EXPECT_EQ(plain.headers.at("upgrade"), "websocket");
    const auto old =
        HttpClient{server.port()}.request("GET", "/v1/responses", "",
                                          {{"authorization", "Bearer sk-1"},
                                           {"connection", "keep-alive, Upgrade"},
                                           {"upgrade", "WebSocket"},
                                           {"sec-websocket-version", "8"},
                                           {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}});
    EXPECT_EQ(old.status, 400);
    EXPECT_EQ(old.headers.at("sec-websocket-version"), "13");
    EXPECT_EQ(old.json().at("error").at("code").as_string(), "invalid_upgrade");
    const auto short_key = HttpClient{server.port()}.request("GET", "/v1/responses", "",
                                                             {{"authorization", "Bearer sk-1"},
                                                              {"connection", "Upgrade"},
                                                              {"upgrade", "websocket"},
                                                              {"sec-websocket-version", "13"},
                                                              {"sec-websocket-key", "c2hvcnQ="}});
    EXPECT_EQ(short_key.json().at("error").at("code").as_string(), "invalid_upgrade");
    WsClient open{server.port(), key};
    EXPECT_TRUE(open.is_open());
    EXPECT_TRUE(open.handshake().headers.contains("x-request-id"));
}

TEST(Upgrade, SelectsASubprotocolAndDeclinesCompression) {
    TestServer server;
    WsClient client{server.port(),
                    {{"sec-websocket-protocol", "openai-insecure-api-key.sk, realtime"},
                     {"sec-websocket-extensions", "permessage-deflate; client_max_window_bits"}},
                    "/v1/responses/?client=1"};
    ASSERT_TRUE(client.is_open());
    EXPECT_EQ(client.handshake().headers.at("sec-websocket-protocol"), "realtime");
    EXPECT_FALSE(client.handshake().headers.contains("sec-websocket-extensions"));
}

TEST(Upgrade, MessagesInTheSameSegmentAreNotLost) {
    TestServer server{{.words = {"a"}}};
    HttpClient client{server.port()};
    std::string frame = "\x81";  // one masked text frame, mask 0
    frame += static_cast<char>(0x80U | kHi.size());
    frame += std::string(4, '\0') + std::string{kHi};
    client.send(
        "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
        frame);
    std::string all;
    while (all.find("response.completed") == std::string::npos) {
        const std::string more = client.read_some();
        ASSERT_FALSE(more.empty());
        all += more;
    }
    EXPECT_TRUE(all.starts_with("HTTP/1.1 101"));
}

TEST(Upgrade, ConnectionsAreCounted) {
    server::Options options;
    options.limits.max_connections = 2;
    TestServer server{{.options = std::move(options)}};
    WsClient first{server.port()};
    WsClient second{server.port()};
    ASSERT_TRUE(first.is_open() && second.is_open());
    HttpClient third{server.port()};
    const std::string answer = third.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 503"));
    const auto body = answer.substr(answer.find("\r\n\r\n") + 4);
    EXPECT_NE(answer.find("Content-Length: " + std::to_string(body.size()) + "\r\n"),
              std::string::npos);
    EXPECT_TRUE(json::parse(body).at("error").at("code").is_string());
}

TEST(Upgrade, ConnectionsOfOneAddressAreCounted) {
    server::Options options;
    options.limits.max_connections_per_address = 2;
    TestServer server{{.options = std::move(options)}};
    WsClient first{server.port()};
    WsClient second{server.port()};
    ASSERT_TRUE(first.is_open() && second.is_open());
    // A whole request is on its way when the answer is written: it must not be lost to a reset.
    for (int i = 0; i < 20; ++i) {
        HttpClient third{server.port()};
        const auto answer = third.request("POST", "/v1/responses", std::string(200'000, 'x'));
        ASSERT_EQ(answer.status, 429) << i;
        EXPECT_EQ(answer.json().at("error").at("code").as_string(), "too_many_connections");
        EXPECT_EQ(answer.headers.count("retry-after"), 1U);
    }
    first.close();
    EXPECT_TRUE(support::eventually([&] { return HttpClient{server.port()}.get("/healthz").status == 200; }));
}

TEST(Upgrade, MessagesAndBodiesHaveLimitsOfTheirOwn) {
    server::Options options;
    options.limits.max_body_bytes = 1000;
    options.limits.max_frame_bytes = 10'000;
    TestServer server{{.options = std::move(options), .words = {"a"}, .context_length = 100'000}};
    const std::string message =
        R"({"type":"response.create","model":"demo-1b","input":")" + std::string(5000, 'x') + R"("})";
    EXPECT_EQ(HttpClient{server.port()}.post("/v1/responses", message).status, 413);
    WsClient client{server.port()};
    EXPECT_EQ(client.turn(message).back().at("type").as_string(), "response.completed");
    client.send(std::string(20'000, 'x'));
    EXPECT_FALSE(client.receive());
    EXPECT_EQ(client.close_code(), 1009);
}

// ---- limits of keys ----------------------------------------------------------------------------

TEST(Keys, AKeyBeyondItsShareGets429AndOthersDoNot) {
    support::TestServerSetup setup{.words = {"a"}};
    setup.options.api_keys = {server::make_key("alice", "sk-1"), server::make_key("bob", "sk-2")};
    setup.options.api_keys[0].max_in_flight = 1;
    setup.script = [](const base::Request&) { return support::FakeEngine::Script{.hold = true}; };
    TestServer server{std::move(setup)};
    const support::Headers alice = {{"authorization", "Bearer sk-1"}};
    const std::string body = R"({"model":"demo","prompt":"Hi"})";
    WsClient running{server.port(), alice};
    running.send(kHi);
    ASSERT_TRUE(support::eventually([&] { return server.engine->num_live() == 1; }));
    const auto refused = HttpClient{server.port()}.request("POST", "/v1/completions", body, alice);
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(refused.json().at("error").at("code").as_string(), "rate_limit_exceeded");
    EXPECT_EQ(refused.headers.count("retry-after"), 1U);
    HttpClient bob{server.port()};
    bob.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-2\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 2; }));
    EXPECT_TRUE(support::eventually(
        [&] { return server.metric("assay_key_rejected_total{key=\"alice\",reason=\"in_flight\"}") == "1"; }));
    server.engine->release();
}

TEST(AccessLog, SeesWhatClientsSendOnlyWhenAsked) {
    std::mutex mutex;
    std::vector<std::string> messages;
    support::TestServerSetup setup{.words = {"a"}};
    setup.options.on_message = [&](std::string_view id, std::string_view text) {
        const std::lock_guard lock{mutex};
        messages.push_back(std::string{id} + " " + std::string{text});
    };
    TestServer server{std::move(setup)};
    HttpClient{server.port()}.post("/v1/completions", R"({"model":"demo","prompt":"first"})");
    {
        WsClient client{server.port()};
        client.turn(kHi);
        client.close();
    }
    ASSERT_TRUE(support::eventually([&] { return server.access().size() == 2; }));
    const std::lock_guard lock{mutex};
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0], server.access()[0].id + R"( {"model":"demo","prompt":"first"})");
    EXPECT_EQ(messages[1], server.access()[1].id + " " + std::string{kHi});
}

// ---- hygiene of a WebSocket --------------------------------------------------------------------

TEST(WebSocketHygiene, BinaryMessagesCloseWith1003) {
    TestServer server;
    WsClient client{server.port()};
    client.send_binary("{}");
    EXPECT_FALSE(client.receive());
    EXPECT_EQ(client.close_code(), 1003);
}

TEST(WebSocketHygiene, AHundredBadMessagesCloseWith1008) {
    TestServer server;
    WsClient client{server.port()};
    for (int i = 0; i < 101; ++i) client.send("no json");
    int num_errors = 0;
    while (client.receive()) ++num_errors;
    EXPECT_EQ(client.close_code(), 1008);
    EXPECT_EQ(num_errors, 101);
}

TEST(WebSocketHygiene, AnOldIdleConnectionIsToldAndClosedWith1001) {
    server::Options options;
    options.limits.max_connection_age = 200ms;
    TestServer server{{.options = std::move(options), .words = {"a"}}};
    WsClient client{server.port()};
    const json::object error = client.next();
    EXPECT_EQ(error.at("error").at("code").as_string(), "websocket_connection_limit_reached");
    EXPECT_EQ(error.at("status").as_int64(), 400);
    EXPECT_FALSE(client.receive());
    EXPECT_EQ(client.close_code(), 1001);
}

TEST(WebSocketHygiene, AnOldBusyConnectionFinishesWhatRunsAndBeginsNothing) {
    server::Options options;
    options.limits.max_connection_age = 200ms;
    TestServer server{{.options = std::move(options), .words = {"a"}, .script = held}};
    WsClient client{server.port()};
    client.send(R"({"type":"response.create","model":"demo-1b","input":"x","stream_id":"one"})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
    std::this_thread::sleep_for(400ms);
    client.send(R"({"type":"response.create","model":"demo-1b","input":"x","stream_id":"two"})");
    json::object event;
    while (!support::is_terminal(event)) event = client.next();
    EXPECT_EQ(event.at("error").at("code").as_string(), "websocket_connection_limit_reached");
    server.engine->release();
    EXPECT_EQ(client.until_terminal().back().at("type").as_string(), "response.completed");
    EXPECT_FALSE(client.receive());
    EXPECT_EQ(client.close_code(), 1001);
}

// ---- leaving in order --------------------------------------------------------------------------

TEST(Drain, IdleConnectionsCloseAndRunEnds) {
    TestServer server{{.words = {"a"}}};
    WsClient socket{server.port()};
    HttpClient http{server.port()};
    EXPECT_EQ(http.get("/healthz").status, 200);
    server.front->drain(10s);
    EXPECT_FALSE(socket.receive());
    EXPECT_EQ(socket.close_code(), 1001);
    EXPECT_EQ(http.read_some(), "");
    EXPECT_TRUE(eventually([&] { return server.has_ended(); }));
    EXPECT_EQ(server.state.phase(), base::ServiceState::Phase::draining);
}

TEST(Drain, RunningResponsesFinishAndNewOnesAreRefused) {
    TestServer server{{.words = {"a"}, .script = held}};
    WsClient socket{server.port()};
    socket.send(kHi);
    HttpClient stream{server.port()};
    send_post(stream, "/v1/completions", R"({"model":"demo-1b","prompt":"x","stream":true})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 2; }));
    server.front->drain(10s);
    ASSERT_TRUE(eventually([&] { return !server.state.is_ready(); }));
    EXPECT_EQ(HttpClient{server.port()}.get("/healthz").status, 200);
    EXPECT_EQ(HttpClient{server.port()}.get("/readyz").status, 503);
    const auto refused =
        HttpClient{server.port()}.post("/v1/completions", R"({"model":"demo-1b"})");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.json().at("error").at("code").as_string(), "draining");
    server.engine->release();
    EXPECT_EQ(socket.until_terminal().back().at("type").as_string(), "response.completed");
    EXPECT_FALSE(socket.receive());
    EXPECT_EQ(socket.close_code(), 1001);
    EXPECT_NE(stream.read_all().find("[DONE]"), std::string::npos);
    EXPECT_TRUE(eventually([&] { return server.has_ended(); }));
}

TEST(Drain, WhatIsLeftAtTheDeadlineFailsAndIsCancelled) {
    TestServer server{{.words = {"a"}, .script = held}};
    WsClient socket{server.port()};
    socket.send(kHi);
    HttpClient whole{server.port()};
    send_post(whole, "/v1/completions", R"({"model":"demo-1b","prompt":"x"})");
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 2; }));
    server.front->drain(50ms);
    const auto events = socket.until_terminal();
    EXPECT_EQ(events.back().at("type").as_string(), "response.failed");
    EXPECT_EQ(events.back().at("response").at("error").at("code").as_string(), "server_error");
    EXPECT_FALSE(socket.receive());
    EXPECT_EQ(socket.close_code(), 1012);
    EXPECT_TRUE(whole.read_all().starts_with("HTTP/1.1 503"));
    EXPECT_TRUE(eventually([&] { return server.has_ended(); }));
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
}

TEST(Stop, DropsConnectionsAndCancels) {
    TestServer server{{.words = {"a"}, .script = held}};
    WsClient socket{server.port()};
    socket.send(kHi);
    ASSERT_TRUE(eventually([&] { return server.engine->num_live() == 1; }));
    server.front->stop();
    while (socket.receive()) {
    }
    EXPECT_EQ(socket.close_code(), 1006);
    EXPECT_TRUE(eventually([&] { return server.engine->num_live() == 0; }));
}

TEST(Listen, ATakenPortIsTheOperatorsMistake) {
    TestServer server;
    server::Options options;
    options.port = server.port();
    base::EngineLink link{4};
    base::ServiceState state;
    metrics::Registry registry;
    try {
        server::Server second{options, link, state, registry};
        FAIL() << "listened twice";
    } catch (const base::ConfigError& error) {
        EXPECT_NE(std::string{error.what()}.find(std::to_string(options.port)), std::string::npos);
        EXPECT_EQ(error.code(), base::ExitCode::config);
    }
}

}  // namespace
