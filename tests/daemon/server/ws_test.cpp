// The WebSocket surface over a real socket: event sequences, refusals, lanes, continuation.
#include "tests/daemon/server/golden.hpp"
#include "tests/daemon/server/sequences.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace {

namespace json = boost::json;
using namespace sequences;
using support::FakeCodec;
using support::FakeEngine;
using support::TestServer;
using support::WsClient;

constexpr std::string_view kHi = R"({"type":"response.create","model":"demo-1b","input":"hi"})";

std::string message(std::string_view fields) {
    return R"({"type":"response.create","model":"demo-1b",)" + std::string{fields} + "}";
}

TEST(WebSocket, TextResponseIsTheGoldenSequence) {
    TestServer server{{.words = {"The", " cat", " sat", "."}}};
    WsClient client{server.port()};
    ASSERT_TRUE(client.is_open());
    const auto events = client.turn(message(R"("input":"x","store":false)"));
    expect_sequence("text", events);
    expect_invariants(events);
    const json::value& usage = events.back().at("response").at("usage");
    const auto prompt = server.engine->requests().at(0).prompt;
    EXPECT_EQ(usage.at("input_tokens").as_int64(), static_cast<std::int64_t>(prompt.size()));
    EXPECT_EQ(usage.at("output_tokens").as_int64(), 5);  // the end token counts
    EXPECT_EQ(events.back().at("response").at("system_fingerprint").as_string(), "fp_test");
}

TEST(WebSocket, LogprobsAreInDeltasDonePartItemAndEnd) {
    TestServer server{
        {.words = {"Yes", ".", "!"}, .script = [](const base::Request&) {
             return FakeEngine::Script{{FakeCodec::kFirstWord, FakeCodec::kFirstWord + 1}};
         }}};
    WsClient client{server.port()};
    const auto events = client.turn(
        message(R"("input":"x","include":["message.output_text.logprobs"],"top_logprobs":2)"));
    expect_invariants(events);
    const json::value expected = json::parse(
        R"([{"token":"Yes","logprob":-0.5,"bytes":[89,101,115],"top_logprobs":[
              {"token":"Yes","logprob":-0.5,"bytes":[89,101,115]},
              {"token":".","logprob":-1.5,"bytes":[46]}]},
            {"token":".","logprob":-0.5,"bytes":[46],"top_logprobs":[
              {"token":".","logprob":-0.5,"bytes":[46]},
              {"token":"!","logprob":-1.5,"bytes":[33]}]}])");
    ASSERT_EQ(type_of(events.at(4)), "response.output_text.delta");
    EXPECT_EQ(events.at(4).at("logprobs").at(0), expected.at(0));
    EXPECT_EQ(events.at(5).at("logprobs").at(0), expected.at(1));
    EXPECT_EQ(events.at(6).at("logprobs"), expected);
    EXPECT_EQ(events.at(7).at("part").at("logprobs"), expected);
    EXPECT_EQ(events.at(9).at("response").at("output").at(0).at("content").at(0).at("logprobs"),
              expected);
    EXPECT_EQ(server.engine->requests().at(0).num_logprobs, 2);
}

TEST(WebSocket, TokenLimitEndsAsIncomplete) {
    TestServer server{{.words = {"Once", " upon", " a", " time"}}};
    WsClient client{server.port()};
    const auto events = client.turn(
        message(R"("input":"x","store":false,"max_output_tokens":3,"ignore_eos":true)"));
    expect_sequence("incomplete_max_output_tokens", events);
    expect_invariants(events);
}

TEST(WebSocket, EngineFailureEndsAsFailedAndTheConnectionGoesOn) {
    std::atomic<int> num_requests{0};
    TestServer server{{.words = {"The"}, .script = [&](const base::Request&) {
                           FakeEngine::Script script{{FakeCodec::kFirstWord}};
                           if (num_requests++ == 0) script.fail_after = 1;
                           return script;
                       }}};
    WsClient client{server.port()};
    const auto events = client.turn(kHi);
    ASSERT_EQ(events.size(), 6U);
    EXPECT_EQ(type_of(events.back()), "response.failed");
    EXPECT_EQ(events.back().at("response").at("error").at("code").as_string(), "server_error");
    EXPECT_EQ(events.back().at("response").at("status").as_string(), "failed");
    EXPECT_EQ(json::serialize(events.back()).find("scripted"), std::string::npos);
    EXPECT_EQ(type_of(client.turn(kHi).back()), "response.completed");
}

TEST(WebSocket, CancelClosesTheItemAndFreesTheEngine) {
    TestServer server{
        {.words = {"One", ", two"}, .script = [](const base::Request&) {
             return FakeEngine::Script{{FakeCodec::kFirstWord, FakeCodec::kFirstWord + 1}, true};
         }}};
    WsClient client{server.port()};
    server.engine->set_step_time(std::chrono::milliseconds{1});
    client.send(message(R"("input":"count","stream_id":"lane.1")"));
    json::object event = client.next();
    const std::string id{event.at("response").at("id").as_string()};
    while (type_of(event) != "response.output_text.delta") event = client.next();
    const auto rest = client.turn(R"({"type":"response.cancel","response_id":")" + id + R"("})");
    EXPECT_EQ(type_of(rest.back()), "response.incomplete");
    EXPECT_EQ(rest.back().at("stream_id").as_string(), "lane.1");
    EXPECT_EQ(rest.back().at("response").at("status").as_string(), "cancelled");
    EXPECT_TRUE(rest.back().at("response").at("incomplete_details").is_null());
    EXPECT_EQ(rest.at(rest.size() - 2).at("item").at("status").as_string(), "incomplete");
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_EQ(server.engine->num_cancelled(), 1U);
}

TEST(WebSocket, WarmUpHasNoItemsAndCanBeContinued) {
    TestServer server{{.words = {"ok"}}};
    WsClient client{server.port()};
    const auto events =
        client.turn(message(R"("input":"long prefix","generate":false,"store":false)"));
    expect_sequence("warmup_generate_false", events);
    EXPECT_EQ(server.engine->requests().at(0).max_tokens, 0);
    const std::string id{events.back().at("response").at("id").as_string()};
    const auto next = client.turn(message(R"("input":"go","previous_response_id":")" + id + '"'));
    EXPECT_EQ(type_of(next.back()), "response.completed");
    const auto prompt = server.engine->requests().at(1).prompt;
    EXPECT_EQ(text_of(prompt), "user:long prefix\nuser:go\nassistant:");
}

TEST(WebSocket, ContinuationSeesWhatWasSaidAndNotTheInstructions) {
    TestServer server{{.words = {"A"}}};
    WsClient client{server.port()};
    const auto first = client.turn(message(R"("input":"Q","instructions":"I")"));
    const std::string id{first.back().at("response").at("id").as_string()};
    const auto second = client.turn(message(R"("input":"Q2","previous_response_id":")" + id + '"'));
    EXPECT_EQ(second.back().at("response").at("previous_response_id").as_string(), id);
    const auto requests = server.engine->requests();
    EXPECT_EQ(text_of(requests[0].prompt), "system:I\nuser:Q\nassistant:");
    EXPECT_EQ(text_of(requests[1].prompt), "user:Q\nassistant:A\nuser:Q2\nassistant:");
    // The lane remembers only its latest response.
    const auto stale = client.turn(message(R"("input":"x","previous_response_id":")" + id + '"'));
    EXPECT_EQ(stale.back().at("error").at("code").as_string(), "previous_response_not_found");
}

TEST(WebSocket, FailedContinuationOfTheSameLaneForgetsItsParent) {
    TestServer server{{.words = {"A"}}};
    WsClient client{server.port()};
    const auto first = client.turn(kHi);
    const std::string previous = R"("previous_response_id":")" +
                                 std::string{first.back().at("response").at("id").as_string()} +
                                 '"';
    const auto bad = client.turn(message(
        previous + R"(,"input":[{"type":"function_call_output","call_id":"nope","output":"1"}])"));
    EXPECT_EQ(bad.back().at("error").at("code").as_string(), "tool_call_not_found");
    const auto gone = client.turn(message(previous + R"(,"input":"x")"));
    EXPECT_EQ(gone.back().at("error").at("code").as_string(), "previous_response_not_found");
}

TEST(WebSocket, ForkFromAnotherLaneKeepsTheParent) {
    TestServer server{{.words = {"A"}}};
    WsClient client{server.port()};
    const auto first = client.turn(message(R"("input":"Q","stream_id":"main")"));
    const std::string previous = R"("previous_response_id":")" +
                                 std::string{first.back().at("response").at("id").as_string()} +
                                 '"';
    const auto bad = client.turn(message(
        previous +
        R"(,"stream_id":"fork","input":[{"type":"function_call_output","call_id":"n","output":"1"}])"));
    EXPECT_EQ(bad.back().at("error").at("code").as_string(), "tool_call_not_found");
    EXPECT_EQ(type_of(client.turn(message(previous + R"(,"stream_id":"fork","input":"x")")).back()),
              "response.completed");
}

TEST(WebSocket, EveryInvalidGoldenMessageGetsItsErrorAndTheConnectionStays) {
    const json::value golden = read_golden("client_invalid.json");
    TestServer lenient{{.words = {"ok"}, .context_length = 512}};
    TestServer strict{
        {.options = {.strict_parameters = true}, .words = {"ok"}, .context_length = 512}};
    int num_checked = 0;
    for (const json::value& item : golden.at("cases").as_array()) {
        const json::object& test_case = item.as_object();
        const std::string id{test_case.at("id").as_string()};
        SCOPED_TRACE(id);
        // These need a connection in a state of its own; each has a test of its own.
        static const std::set<std::string> kOwnTest = {"previous_evicted", "stream_id_33rd",
                                                       "queue_full", "too_old"};
        if (kOwnTest.contains(id)) continue;
        const bool is_strict = test_case.contains("mode");
        WsClient client{(is_strict ? strict : lenient).port()};
        std::string text = test_case.contains("send_text")
                               ? std::string{test_case.at("send_text").as_string()}
                               : json::serialize(test_case.at("message"));
        if (id == "context_too_long") text = message(R"("input":")" + std::string(600, 'x') + '"');
        const auto events = client.turn(text);
        ASSERT_EQ(events.size(), 1U);
        ASSERT_EQ(type_of(events[0]), "error") << json::serialize(events[0]);
        const json::object& expect = test_case.at("expect").as_object();
        const json::object& error = events[0].at("error").as_object();
        EXPECT_EQ(events[0].at("status"), expect.at("status"));
        EXPECT_EQ(error.at("type"), expect.at("type"));
        EXPECT_EQ(error.at("code"), expect.at("code")) << error.at("message");
        EXPECT_EQ(error.at("param"), expect.at("param")) << error.at("message");
        EXPECT_FALSE(events[0].contains("stream_id"));
        EXPECT_EQ(type_of(client.turn(kHi).back()), "response.completed");
        ++num_checked;
    }
    EXPECT_EQ(num_checked, 70);
}

TEST(WebSocket, EveryValidGoldenMessageEndsAsStated) {
    const json::value golden = read_golden("client_valid.json");
    TestServer server{{.words = {"One", " two", " three", " four"}}};
    WsClient client{server.port()};
    std::map<std::string, std::string> response_ids;
    int num_checked = 0;
    for (const json::value& item : golden.at("cases").as_array()) {
        const json::object& test_case = item.as_object();
        const std::string id{test_case.at("id").as_string()};
        SCOPED_TRACE(id);
        // Structured output and forced calls are refused until there is a grammar for them.
        static const std::set<std::string> kNeedsGrammar = {"json_schema", "json_object",
                                                            "tool_forced", "tool_required",
                                                            "tool_result_incremental"};
        if (kNeedsGrammar.contains(id) || id == "cancel_extension") continue;
        json::object sent = test_case.at("message").as_object();
        if (test_case.contains("after"))
            sent["previous_response_id"] =
                response_ids.at(std::string{test_case.at("after").as_string()});
        // Its parent must be the lane's latest; other cases came between.
        if (id == "continuation") {
            const auto parent = client.turn(kHi);
            sent["previous_response_id"] = parent.back().at("response").at("id");
        }
        ++num_checked;
        if (test_case.at("terminal").is_null()) {
            client.send(json::serialize(sent));
            continue;  // no event at all: the next case's events are its own, as their ids show
        }
        const auto events = client.turn(json::serialize(sent));
        EXPECT_EQ(type_of(events.back()), test_case.at("terminal").as_string())
            << json::serialize(events.back());
        if (!events.back().contains("response")) continue;
        expect_invariants(events);
        response_ids[id] = events.back().at("response").at("id").as_string();
        for (const json::object& event : events)
            EXPECT_EQ(event.contains("stream_id"),
                      sent.contains("stream_id") && !sent.at("stream_id").is_null());
    }
    EXPECT_EQ(num_checked, 37);
    EXPECT_EQ(type_of(client.turn(kHi).front()), "response.created");
}

TEST(WebSocket, ValidButNotYetPossibleIsRefusedByName) {
    TestServer server;
    WsClient client{server.port()};
    const auto schema =
        client.turn(message(R"("input":"x","text":{"format":{"type":"json_object"}})"));
    EXPECT_EQ(schema.back().at("error").at("param").as_string(), "text.format.type");
    const auto forced = client.turn(message(
        R"("input":"x","tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":"required")"));
    EXPECT_EQ(forced.back().at("error").at("param").as_string(), "tool_choice");
}

TEST(WebSocket, StopStringEndsTheTextAndTheRequestAtTheEngine) {
    TestServer server{{.words = {"ab", "c", "de"}, .script = [](const base::Request&) {
                           return FakeEngine::Script{{258, 259, 260}, true};
                       }}};
    server.engine->set_step_time(std::chrono::milliseconds{1});
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x","stop":["cd"])"));
    expect_invariants(events);
    EXPECT_EQ(type_of(events.back()), "response.completed");
    EXPECT_EQ(
        events.back().at("response").at("output").at(0).at("content").at(0).at("text").as_string(),
        "ab");
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_EQ(server.engine->num_cancelled(), 1U);
}

TEST(WebSocket, DeltasNeverSplitACharacter) {
    const std::string text = "\xF0\x9F\x98\x80\xC3\xA9x";
    TestServer server{{.script = [&](const base::Request&) {
        FakeEngine::Script script;
        for (const char c : text) script.tokens.push_back(static_cast<unsigned char>(c));
        return script;
    }}};
    WsClient client{server.port()};
    const auto events = client.turn(kHi);
    expect_invariants(events);
    const auto num_deltas = std::count_if(events.begin(), events.end(), [](const auto& event) {
        return type_of(event) == "response.output_text.delta";
    });
    EXPECT_EQ(num_deltas, 3);
    EXPECT_EQ(
        events.back().at("response").at("output").at(0).at("content").at(0).at("text").as_string(),
        text);
}

TEST(WebSocket, LanesInterleaveAndOneLaneKeepsItsOrder) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request& request) {
                           FakeEngine::Script script{{258, 258, 258}};
                           const std::string prompt = text_of(request.prompt);
                           script.hold = prompt.find("wait") != std::string::npos;
                           return script;
                       }}};
    WsClient client{server.port()};
    client.send(message(R"("input":"wait","stream_id":"slow")"));
    client.send(message(R"("input":"bad","temperature":9,"stream_id":"slow")"));
    client.send(message(R"("input":"hi","stream_id":"fast")"));
    std::vector<std::pair<std::string, std::string>> ends;
    while (ends.empty()) {
        const json::object event = client.next();
        if (support::is_terminal(event))
            ends.emplace_back(event.at("stream_id").as_string(), type_of(event));
    }
    server.engine->release();
    while (ends.size() < 3) {
        const json::object event = client.next();
        ASSERT_FALSE(event.empty());
        if (support::is_terminal(event))
            ends.emplace_back(event.at("stream_id").as_string(), type_of(event));
    }
    using Ends = std::vector<std::pair<std::string, std::string>>;
    EXPECT_EQ(
        ends,
        (Ends{{"fast", "response.completed"}, {"slow", "response.completed"}, {"slow", "error"}}));
}

TEST(WebSocket, SixteenRunAtOnceAndTheThirtyThirdLaneIsRefused) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{258}};
                           script.hold = true;
                           return script;
                       }}};
    WsClient client{server.port()};
    for (int i = 1; i <= 33; ++i)
        client.send(message(R"("input":"x","stream_id":"lane-)" + std::to_string(i) + '"'));
    json::object refused;
    while (type_of(refused) != "error") refused = client.next();
    EXPECT_EQ(refused.at("error").at("code").as_string(), "websocket_stream_limit_reached");
    EXPECT_EQ(refused.at("stream_id").as_string(), "lane-33");
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_started() == 16; }));
    EXPECT_EQ(server.engine->num_live(), 16U);
    server.engine->release();
    int num_completed = 0;
    while (num_completed < 32) {
        const json::object event = client.next();
        ASSERT_FALSE(event.empty());
        num_completed += type_of(event) == "response.completed";
    }
    EXPECT_EQ(server.engine->num_started(), 32U);
}

TEST(WebSocket, WaitingResponsesAreBounded) {
    server::Options options;
    options.limits.max_waiting = 3;
    TestServer server{
        {.options = std::move(options), .words = {"a"}, .script = [](const base::Request&) {
             FakeEngine::Script script{{258}};
             script.hold = true;
             return script;
         }}};
    WsClient client{server.port()};
    for (int i = 0; i < 5; ++i) client.send(kHi);
    json::object refused;
    while (type_of(refused) != "error") refused = client.next();
    EXPECT_EQ(refused.at("status").as_int64(), 429);
    EXPECT_EQ(refused.at("error").at("code").as_string(), "websocket_queue_full");
    EXPECT_EQ(refused.at("error").at("headers").at("retry-after").as_string(), "1");
    server.engine->release();
    for (int done = 0; done < 4;) done += type_of(client.next()) == "response.completed";
    EXPECT_EQ(server.engine->num_started(), 4U);
}

TEST(WebSocket, FullEngineQueueIsAnOverload) {
    TestServer server{{.words = {"a"}, .max_submissions = 2}};
    server.link.stop();  // the engine takes nothing any more
    WsClient client{server.port()};
    for (int i = 0; i < 4; ++i) client.send(message(R"("input":"x","stream_id":"l)" + std::to_string(i) + '"'));
    const json::object event = client.next();
    EXPECT_EQ(type_of(event), "error");
    EXPECT_EQ(event.at("error").at("code").as_string(), "server_overloaded");
}

/// What the engine refuses, as opposed to what fails while it runs, never began.
TEST(WebSocket, ARefusalOfTheEngineIsAnErrorAndNotAFailedResponse) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script;
                           script.refuses = true;
                           script.error = base::Errc::queue_full;
                           return script;
                       }}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x")"));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(type_of(events[0]), "error");
    EXPECT_EQ(events[0].at("status").as_int64(), 503);
    EXPECT_EQ(events[0].at("error").at("code").as_string(), "server_overloaded");
}

TEST(WebSocket, CancelNamesItsLaneAndResponseProperly) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script;
                           script.hold = true;
                           return script;
                       }}};
    WsClient client{server.port()};
    client.send(message(R"("input":"x")"));
    EXPECT_EQ(type_of(client.next()), "response.created");
    EXPECT_EQ(type_of(client.next()), "response.in_progress");
    client.send(R"({"type":"response.cancel","stream_id":"not ok!"})");
    json::object refused = client.next();
    EXPECT_EQ(refused.at("error").at("code").as_string(), "invalid_stream_id");
    client.send(R"({"type":"response.cancel","response_id":5})");
    refused = client.next();
    EXPECT_EQ(refused.at("error").at("code").as_string(), "invalid_type");
    EXPECT_EQ(server.engine->num_live(), 1U);
}

TEST(WebSocket, TemplateThatRefusesIsTheClientsError) {
    TestServer server;
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"refuse!")"));
    EXPECT_EQ(events.back().at("error").at("code").as_string(), "template_failed");
    EXPECT_NE(std::string{events.back().at("error").at("message").as_string()}.find("no such talk"),
              std::string::npos);
}

TEST(WebSocket, TruncationAutoDropsTheOldestItems) {
    TestServer server{{.words = {"a"}, .context_length = 64}};
    WsClient client{server.port()};
    const std::string input = R"("input":[{"role":"user","content":")" + std::string(80, 'x') +
                              R"("},{"role":"user","content":"new"}])";
    EXPECT_EQ(client.turn(message(input)).back().at("error").at("code").as_string(),
              "context_length_exceeded");
    EXPECT_EQ(type_of(client.turn(message(input + R"(,"truncation":"auto")")).back()),
              "response.completed");
    const auto prompt = server.engine->requests().at(0).prompt;
    EXPECT_EQ(text_of(prompt), "user:new\nassistant:");
}

TEST(WebSocket, SteerIsAnsweredOnceAndReceiptsNotAtAll) {
    TestServer server{{.words = {"ok"}}};
    WsClient client{server.port()};
    client.send(R"({"type":"response.processed","response_id":"resp_x"})");
    const auto steer =
        client.turn(R"({"type":"response.steer","previous_response_id":"resp_x","input":"y"})");
    ASSERT_EQ(steer.size(), 1U);
    EXPECT_EQ(type_of(steer[0]), "response.steer.failed");
    EXPECT_EQ(steer[0].at("sequence_number").as_int64(), 0);
    EXPECT_EQ(steer[0].at("error").at("code").as_string(), "response_not_found");
    EXPECT_EQ(steer[0].at("steer").at("input").as_string(), "y");
}

TEST(WebSocket, SteeringCountsInTheStreamOfItsTarget) {
    TestServer server{{.words = {"a", "b"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{FakeCodec::kFirstWord}};
                           script.hold = true;
                           return script;
                       }}};
    WsClient client{server.port()};
    client.send(message(R"("input":"x","stream_id":"lane")"));
    const std::string id{client.next().at("response").at("id").as_string()};
    EXPECT_EQ(type_of(client.next()), "response.in_progress");
    const std::string steer =
        R"({"type":"response.steer","previous_response_id":")" + id + R"(","input":"y"})";
    const auto running = client.turn(steer);
    EXPECT_EQ(running.at(0).at("error").at("code").as_string(), "steering_not_supported");
    EXPECT_EQ(running.at(0).at("sequence_number").as_int64(), 2);
    EXPECT_EQ(running.at(0).at("stream_id").as_string(), "lane");
    server.engine->release();
    std::int64_t number = 3;
    json::object event;
    while (!support::is_terminal(event)) {
        event = client.next();
        EXPECT_EQ(event.at("sequence_number").as_int64(), number++);
    }
    for (; number < 11; ++number) {
        const auto ended = client.turn(steer);
        EXPECT_EQ(ended.at(0).at("error").at("code").as_string(), "response_already_completed");
        EXPECT_NE(std::string{ended.at(0).at("error").at("message").as_string()}.find("ended"),
                  std::string::npos);
        EXPECT_EQ(ended.at(0).at("sequence_number").as_int64(), number);
    }
    EXPECT_EQ(server.metric(R"(assay_ws_messages_total{dir="out"})"), "11");
}

TEST(WebSocket, RefusalsOfABusyOrLeavingServerAreNoBadMessages) {
    server::Options options;
    options.limits.max_bad_messages = 5;
    options.limits.max_waiting = 1;
    TestServer server{
        {.options = std::move(options), .words = {"a"}, .script = [](const base::Request&) {
             FakeEngine::Script script{{FakeCodec::kFirstWord}};
             script.hold = true;
             return script;
         }}};
    WsClient client{server.port()};
    for (int i = 0; i < 22; ++i) client.send(kHi);  // one runs, one waits
    const auto wait_for = [&client](std::string_view type, int count) {
        for (int seen = 0; seen < count;) {
            const json::object event = client.next();
            if (event.empty()) return false;  // closed
            seen += type_of(event) == type;
        }
        return true;
    };
    ASSERT_TRUE(wait_for("error", 20));
    server.engine->release();
    ASSERT_TRUE(wait_for("response.completed", 2));
    server.state.set(base::ServiceState::Phase::failed, "watch");
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(client.turn(kHi).back().at("status").as_int64(), 503);
    for (int i = 0; i < 6; ++i) client.send("{}");  // and these are
    while (client.receive()) {
    }
    EXPECT_EQ(client.close_code(), 1008);
}

/// The error events that are there as examples.
TEST(WebSocket, ErrorsAreTheGoldenOnes) {
    const auto held = [](const base::Request&) {
        FakeEngine::Script script{{FakeCodec::kFirstWord}};
        script.hold = true;
        return script;
    };
    TestServer server{{.words = {"ok"}}};
    {
        WsClient client{server.port()};
        expect_sequence("error_previous_response_not_found",
                        client.turn(message(
                            R"("input":"x","stream_id":"main","previous_response_id":"resp_zz")")));
        expect_sequence("error_invalid_stream_id",
                        client.turn(message(R"("input":"x","stream_id":"a b")")));
        for (int i = 1; i <= 31; ++i)  // and "main"
            client.turn(message(R"("input":"x","stream_id":"agent_)" + std::to_string(i) + '"'));
        expect_sequence("error_stream_limit",
                        client.turn(message(R"("input":"x","stream_id":"agent_33")")));
        server.state.set(base::ServiceState::Phase::failed, "watch");
        expect_sequence("error_not_ready", client.turn(kHi));
    }
    server::Options options;
    options.limits.max_waiting = 0;
    options.limits.max_connection_age = std::chrono::milliseconds{300};
    TestServer busy{{.options = std::move(options), .words = {"ok"}, .script = held}};
    {
        WsClient client{busy.port()};
        expect_sequence("error_queue_full", client.turn(kHi));
        expect_sequence("error_connection_lifetime", {client.next()});
    }
    TestServer full{{.words = {"ok"}, .script = [](const base::Request&) {
                         FakeEngine::Script script;
                         script.refuses = true;
                         script.error = base::Errc::queue_full;
                         return script;
                     }}};
    WsClient client{full.port()};
    expect_sequence("error_overloaded", client.turn(kHi));
}

/// Answers to pings and events are written by one writer.
TEST(WebSocket, PingsInTheMiddleOfAStreamDisturbNothing) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           return FakeEngine::Script{
                               std::vector<std::int32_t>(200, FakeCodec::kFirstWord)};
                       }}};
    server.engine->set_step_time(std::chrono::milliseconds{1});  // else all is said before a ping
    WsClient client{server.port()};
    int num_pongs = 0;
    client.on_pong([&num_pongs] { ++num_pongs; });
    client.send(message(R"("input":"x")"));
    std::vector<json::object> events;
    do {
        for (int i = 0; i < 3; ++i) client.ping();
        events.push_back(client.next());
        ASSERT_FALSE(events.back().empty());
    } while (!support::is_terminal(events.back()));
    expect_invariants(events);
    EXPECT_EQ(
        events.back().at("response").at("output").at(0).at("content").at(0).at("text").as_string(),
        std::string(200, 'a'));
    EXPECT_GT(num_pongs, 10);
}

TEST(WebSocket, ARequestHasATimeLimitWhereOneIsConfigured) {
    server::Options options;
    options.limits.request_timeout = std::chrono::seconds{30};
    TestServer limited{{.options = std::move(options), .words = {"a"}}};
    TestServer unlimited{{.words = {"a"}}};
    for (TestServer* server : {&limited, &unlimited}) {
        WsClient{server->port()}.turn(kHi);
        support::HttpClient{server->port()}.post("/v1/completions",
                                                 R"({"model":"demo-1b","prompt":"x"})");
    }
    for (const base::Request& request : limited.engine->requests())
        EXPECT_EQ(request.deadline, request.received + std::chrono::seconds{30});
    EXPECT_EQ(limited.engine->requests().size(), 2U);
    for (const base::Request& request : unlimited.engine->requests())
        EXPECT_EQ(request.deadline, base::Clock::time_point::max());
}

/// The upgrade requests and first messages of public clients, as captured.
TEST(WebSocket, EveryCapturedHandshakeIsAccepted) {
    const json::value golden = read_golden("handshakes.json");
    TestServer server{{.words = {"ok"}}};
    int num_checked = 0;
    for (const json::value& capture : golden.at("captures").as_array()) {
        const json::object& entry = capture.as_object();
        SCOPED_TRACE(json::serialize(entry.at("client")));
        if (!entry.contains("headers") || !entry.at("headers").is_array()) continue;
        const std::string line{entry.at("request_line").as_string()};
        std::string request = line + "\r\n";
        bool is_upgrade = false;
        for (const json::value& header : entry.at("headers").as_array()) {
            std::string name{header.at(0).as_string()}, value{header.at(1).as_string()};
            std::string lower = name;
            std::transform(lower.begin(), lower.end(), lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
            if (lower == "sec-websocket-key") value = "dGhlIHNhbXBsZSBub25jZQ==";
            is_upgrade |= lower == "upgrade";
            for (auto at = value.find("PORT"); at != std::string::npos; at = value.find("PORT"))
                value.replace(at, 4, std::to_string(server.port()));
            request += name + ": " + value + "\r\n";
        }
        if (!is_upgrade) continue;
        support::HttpClient client{server.port()};
        client.send(request + "\r\n");
        EXPECT_TRUE(client.read_some().starts_with("HTTP/1.1 101")) << request;
        ++num_checked;
    }
    EXPECT_GE(num_checked, 7);
}

TEST(WebSocket, ThirtyTwoStreamsEachGetTheirOwnText) {
    TestServer server{{.script = [](const base::Request& request) {
        return FakeEngine::Script{request.prompt};  // echoes: each prompt is another text
    }}};
    std::vector<std::thread> clients;
    std::atomic<int> num_right{0};
    for (int i = 0; i < 32; ++i) {
        clients.emplace_back([&, i] {
            WsClient client{server.port()};
            const std::string input = "stream " + std::to_string(i);
            const auto events = client.turn(message(R"("input":")" + input + '"'));
            if (type_of(events.back()) != "response.completed") return;
            const json::value& output = events.back().at("response").at("output");
            num_right += output.at(0).at("content").at(0).at("text").as_string() ==
                         "user:" + input + "\nassistant:";  // a BOS prints as nothing
        });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(num_right, 32);
    EXPECT_EQ(server.engine->num_live(), 0U);
    EXPECT_EQ(
        server.metric(
            R"(assay_requests_total{model="demo-1b",api="responses",transport="ws",outcome="ok"})"),
        "32");
}

}  // namespace
