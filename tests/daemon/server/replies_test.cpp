// Reasoning and tool calls over a real socket: what a model writes, as each surface tells it.
#include "tests/daemon/server/sequences.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

namespace json = boost::json;
using namespace sequences;
using support::FakeEngine;
using support::HttpClient;
using support::TestServer;
using support::WsClient;
using Words = std::vector<std::string>;

constexpr std::int32_t kWord = FakeCodec::kFirstWord;
constexpr std::string_view kWeather =
    R"({"type":"function","name":"get_weather","description":"Weather for a city","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},"strict":true})";
constexpr std::string_view kChatWeather =
    R"({"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}})";

const Words kThought = {"<think>", "Two plus two", " is four.", "</think>", "\n\n", "4"};
const Words kCalls = {R"(<tool_call>{"name":"get_weather","arguments":)",
                      R"({"city":)",
                      R"("Oslo"})",
                      "}</tool_call>",
                      R"(<tool_call>{"name":"get_weather","arguments":)",
                      R"({"city":")",
                      R"(Bergen"})",
                      "}</tool_call>"};

std::string message(std::string_view fields) {
    return R"({"type":"response.create","model":"demo-1b",)" + std::string{fields} + "}";
}

std::string tools(std::string_view tool = kWeather) {
    return R"("tools":[)" + std::string{tool} + "]";
}

std::string chat(std::string_view fields) {
    return R"({"model":"demo-1b","messages":[{"role":"user","content":"?"}])" +
           (fields.empty() ? std::string{} : "," + std::string{fields}) + "}";
}

/// The chunks of a stream without the last line.
std::vector<json::object> chunks(const support::HttpAnswer& answer) {
    std::vector<json::object> out;
    for (const std::string& event : answer.events())
        if (event != "[DONE]") out.push_back(json::parse(event).as_object());
    return out;
}

const json::value& delta_of(const json::object& chunk) {
    return chunk.at("choices").at(0).at("delta");
}

// ---- responses ---------------------------------------------------------------------------------

TEST(Replies, ReasoningThenTextIsTheGoldenSequence) {
    TestServer server{{.words = kThought}};
    WsClient client{server.port()};
    const auto events =
        client.turn(message(R"("input":"2+2?","reasoning":{"effort":"low"},"store":false)"));
    expect_sequence("reasoning_then_text", events);
    expect_invariants(events);
    const json::value& usage = events.back().at("response").at("usage");
    EXPECT_EQ(usage.at("output_tokens").as_int64(), 7);
    EXPECT_EQ(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), 4);
}

TEST(Replies, ASummaryIsToldInPlaceOfTheReasoning) {
    TestServer server{{.words = {"<think>", "Added the numbers.", "</think>", "4"}}};
    WsClient client{server.port()};
    const auto events = client.turn(
        message(R"("input":"x","reasoning":{"effort":"low","summary":"auto"},"store":false)"));
    expect_sequence("reasoning_summary_then_text", events);
    expect_invariants(events);
}

TEST(Replies, ParallelCallsAreTheGoldenSequence) {
    TestServer server{{.words = kCalls, .reply_format = "hermes"}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"Weather?","store":false,)" + tools()));
    expect_sequence("function_calls_parallel", events);
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    EXPECT_NE(output.at(0).at("call_id"), output.at(1).at("call_id"));
    EXPECT_EQ(text_of(server.engine->requests().at(0).prompt),
              "[get_weather]\nuser:Weather?\nassistant:");
}

TEST(Replies, WithoutParallelCallsTheFirstIsTheLast) {
    TestServer server{{.words = kCalls,
                       .script = [](const base::Request&) {
                           FakeEngine::Script script;
                           for (std::int32_t i = 0; i < 8; ++i) script.tokens.push_back(kWord + i);
                           script.loops = true;
                           return script;
                       },
                       .reply_format = "hermes"}};
    server.engine->set_step_time(std::chrono::milliseconds{1});
    WsClient client{server.port()};
    const auto events =
        client.turn(message(R"("input":"x","parallel_tool_calls":false,)" + tools()));
    EXPECT_EQ(type_of(events.back()), "response.completed");
    expect_invariants(events);
    EXPECT_EQ(events.back().at("response").at("output").as_array().size(), 1U);
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
    EXPECT_EQ(server.engine->num_cancelled(), 1U);
}

TEST(Replies, TextMayStandBesideCalls) {
    Words words = kCalls;
    words.insert(words.begin(), "Let me look.\n");
    TestServer server{{.words = words, .reply_format = "hermes"}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x",)" + tools()));
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    ASSERT_EQ(output.size(), 3U);
    EXPECT_EQ(output.at(0).at("content").at(0).at("text").as_string(), "Let me look.");
    EXPECT_EQ(output.at(2).at("arguments").as_string(), R"({"city":"Bergen"})");
}

TEST(Replies, ALimitInsideOfTheReasoningLeavesNoMessage) {
    TestServer server{{.words = kThought}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x","max_output_tokens":2)"));
    EXPECT_EQ(type_of(events.back()), "response.incomplete");
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    ASSERT_EQ(output.size(), 1U);
    EXPECT_EQ(output.at(0).at("type").as_string(), "reasoning");
    EXPECT_EQ(output.at(0).at("status").as_string(), "incomplete");
}

TEST(Replies, ALimitInsideOfACallLeavesItIncompleteAndCanBeContinued) {
    TestServer server{{.words = kCalls, .reply_format = "hermes"}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x","max_output_tokens":2,)" + tools()));
    EXPECT_EQ(type_of(events.back()), "response.incomplete");
    expect_invariants(events);
    const json::object& response = events.back().at("response").as_object();
    EXPECT_EQ(response.at("output").at(0).at("status").as_string(), "incomplete");
    EXPECT_EQ(response.at("output").at(0).at("arguments").as_string(), R"({"city":)");
    const auto next = client.turn(message(R"("input":"go on","previous_response_id":")" +
                                          std::string{response.at("id").as_string()} + '"'));
    EXPECT_EQ(type_of(next.back()), "response.completed");
}

TEST(Replies, AReplyThatNeverClosesItsReasoningHasAnEmptyAnswer) {
    TestServer server{{.words = {"<think>", "hm"}}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x")"));
    EXPECT_EQ(type_of(events.back()), "response.completed");
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    ASSERT_EQ(output.size(), 2U);
    EXPECT_EQ(output.at(1).at("content").at(0).at("text").as_string(), "");
}

TEST(Replies, APromptThatOpensTheReasoningIsReadOnFromThere) {
    TestServer server{{.words = {"hm", "</think>", "4"}}};
    server.codec->in_reasoning = true;
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x")"));
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    EXPECT_EQ(output.at(0).at("content").at(0).at("text").as_string(), "hm");
    EXPECT_EQ(output.at(1).at("content").at(0).at("text").as_string(), "4");
}

TEST(Replies, WithoutToolsOrWithChoiceNoneWhatLooksLikeACallIsText) {
    TestServer server{{.words = kCalls, .reply_format = "hermes"}};
    WsClient client{server.port()};
    for (const std::string& fields :
         {std::string{R"("input":"x")"}, R"("input":"x","tool_choice":"none",)" + tools()}) {
        const auto events = client.turn(message(fields));
        const json::array& output = events.back().at("response").at("output").as_array();
        ASSERT_EQ(output.size(), 1U);
        EXPECT_EQ(output.at(0).at("type").as_string(), "message");
    }
    EXPECT_EQ(text_of(server.engine->requests().at(1).prompt), "user:x\nassistant:");
}

TEST(Replies, LogprobsAreThoseOfTheTextOnly) {
    TestServer server{{.words = {"<think>", "hm", "</think>", "\n\n", "Yes", ".", "!"},
                       .script = [](const base::Request&) {
                           return FakeEngine::Script{
                               {kWord, kWord + 1, kWord + 2, kWord + 3, kWord + 4, kWord + 5}};
                       }}};
    WsClient client{server.port()};
    const auto events = client.turn(
        message(R"("input":"x","include":["message.output_text.logprobs"],"top_logprobs":1)"));
    expect_invariants(events);
    const json::value& part =
        events.back().at("response").at("output").at(1).at("content").at(0);
    EXPECT_EQ(part.at("text").as_string(), "Yes.");
    ASSERT_EQ(part.at("logprobs").as_array().size(), 2U) << json::serialize(part);
    EXPECT_EQ(part.at("logprobs").at(0).at("token").as_string(), "Yes");
    EXPECT_EQ(part.at("logprobs").at(1).at("token").as_string(), ".");
}

TEST(Replies, ACallThatIsNoneEndsIncompleteAndIsInTheLog) {
    TestServer server{{.words = {R"(<tool_call>{"name":"get_weather","arguments":{"city")", "oops"},
                       .reply_format = "hermes"}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x",)" + tools()));
    expect_invariants(events);
    const json::value& item = events.back().at("response").at("output").at(0);
    EXPECT_EQ(item.at("type").as_string(), "function_call");
    EXPECT_EQ(item.at("status").as_string(), "incomplete");
    EXPECT_NE(item.at("arguments").as_string(), "{}");
    ASSERT_EQ(server.problems().size(), 1U);
    EXPECT_NE(server.problems()[0].find("tool call"), std::string::npos);
}

TEST(Replies, AToolRoundIsContinuedByItsOutput) {
    Words words = kThought;
    words.resize(4);
    words.insert(words.end(), kCalls.begin(), kCalls.begin() + 4);
    TestServer server{{.words = words, .reply_format = "hermes"}};
    WsClient client{server.port()};
    const auto first = client.turn(message(R"("input":"w?",)" + tools()));
    const json::object& response = first.back().at("response").as_object();
    const std::string call_id{response.at("output").at(1).at("call_id").as_string()};
    const std::string previous = R"("previous_response_id":")" +
                                 std::string{response.at("id").as_string()} + R"(",)" + tools();
    const auto next = client.turn(
        message(previous + R"(,"input":[{"type":"function_call_output","call_id":")" + call_id +
                R"(","output":"sunny"}])"));
    EXPECT_EQ(type_of(next.back()), "response.completed") << json::serialize(next.back());
    EXPECT_EQ(text_of(server.engine->requests().at(1).prompt),
              "[get_weather]\nuser:w?\n"
              "assistant:{Two plus two is four.}(get_weather {\"city\":\"Oslo\"})\n"
              "tool:sunny\nassistant:");
}

TEST(Replies, OfASlowReaderJoinTheirDeltasWithinOneItem) {
    server::Options options;
    options.limits.send_high_bytes = 1;  // every delta that waits takes the next one
    Words words{"<think>"};
    for (int i = 0; i < 200; ++i) words.push_back("r");
    words.push_back("</think>");
    for (int i = 0; i < 200; ++i) words.push_back("c");
    TestServer server{{.options = std::move(options), .words = words}};
    WsClient client{server.port()};
    const auto events = client.turn(message(R"("input":"x")"));
    expect_invariants(events);
    const json::array& output = events.back().at("response").at("output").as_array();
    EXPECT_EQ(output.at(0).at("content").at(0).at("text").as_string(), std::string(200, 'r'));
    EXPECT_EQ(output.at(1).at("content").at(0).at("text").as_string(), std::string(200, 'c'));
}

TEST(Replies, FailureAndCancelAreTheGoldenSequences) {
    TestServer failing{{.words = {"Par"}, .script = [](const base::Request&) {
                            return FakeEngine::Script{.tokens = {kWord}, .fail_after = 1};
                        }}};
    WsClient client{failing.port()};
    expect_sequence("failed_mid_stream", client.turn(message(R"("input":"x","store":false)")));

    TestServer endless{{.words = {"One, two"}, .script = [](const base::Request&) {
                            return FakeEngine::Script{.tokens = {kWord}, .loops = true};
                        }}};
    endless.engine->set_step_time(std::chrono::milliseconds{200});
    WsClient other{endless.port()};
    other.send(message(R"("input":"x","store":false)"));
    std::vector<json::object> events;
    do {
        events.push_back(other.next());
    } while (type_of(events.back()) != "response.output_text.delta");
    for (json::object& event : other.turn(R"({"type":"response.cancel"})"))
        events.push_back(std::move(event));
    expect_sequence("cancelled_by_client_extension", events);
}

// ---- chat completions --------------------------------------------------------------------------

TEST(ChatReplies, StreamReasoningContentAndTheReason) {
    TestServer server{{.words = kThought}};
    HttpClient client{server.port()};
    const auto all = chunks(client.post(
        "/v1/chat/completions", chat(R"("stream":true,"stream_options":{"include_usage":true})")));
    std::string reasoning, content;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        const json::object& delta = delta_of(all[i]).as_object();
        if (const json::value* text = delta.if_contains("reasoning_content")) {
            EXPECT_EQ(content, "");
            reasoning += text->as_string();
        }
        if (const json::value* text = delta.if_contains("content")) content += text->as_string();
    }
    EXPECT_EQ(reasoning, "Two plus two is four.");
    EXPECT_EQ(content, "4");
    EXPECT_EQ(all.at(all.size() - 2).at("choices").at(0).at("finish_reason").as_string(), "stop");
    EXPECT_EQ(all.back().at("usage").at("completion_tokens_details").at("reasoning_tokens"), 4);
}

TEST(ChatReplies, StreamedCallsAreTheGoldenChunks) {
    TestServer server{
        {.words = Words(kCalls.begin(), kCalls.begin() + 4), .reply_format = "hermes"}};
    HttpClient client{server.port()};
    const auto all = chunks(
        client.post("/v1/chat/completions", chat(R"("stream":true,)" + tools(kChatWeather))));
    const json::value file = read_golden("http_examples.json");
    const json::array& golden = file.at("chat_stream_tool_call").as_array();
    ASSERT_EQ(all.size(), golden.size());  // the role is a chunk of its own; theirs is a note
    EXPECT_EQ(delta_of(all[0]), json::parse(R"({"role":"assistant","content":""})"));
    for (std::size_t i = 1; i < all.size(); ++i) {
        json::object expected = golden[i].at("choices").at(0).at("delta").as_object();
        expected.erase("role");
        expect_like(expected, delta_of(all[i]), "chunk " + std::to_string(i) + ".");
        EXPECT_EQ(all[i].at("choices").at(0).at("finish_reason"),
                  golden[i].at("choices").at(0).at("finish_reason"));
    }
}

TEST(ChatReplies, WholeAnswersHaveCallsReasoningAndNullContent) {
    Words words = kThought;
    words.resize(4);
    words.insert(words.end(), kCalls.begin(), kCalls.end());
    TestServer server{{.words = words, .reply_format = "hermes"}};
    HttpClient client{server.port()};
    const auto answer = client.post("/v1/chat/completions", chat(R"("n":2,)" + tools(kChatWeather)));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::object body = answer.json();
    ASSERT_EQ(body.at("choices").as_array().size(), 2U);
    std::set<std::string> ids;
    for (const json::value& choice : body.at("choices").as_array()) {
        EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
        const json::object& said = choice.at("message").as_object();
        EXPECT_TRUE(said.at("content").is_null());
        EXPECT_EQ(said.at("reasoning_content").as_string(), "Two plus two is four.");
        const json::array& calls = said.at("tool_calls").as_array();
        ASSERT_EQ(calls.size(), 2U);
        EXPECT_EQ(calls.at(1).at("function").at("arguments").as_string(), R"({"city":"Bergen"})");
        for (const json::value& call : calls) ids.insert(std::string{call.at("id").as_string()});
    }
    EXPECT_EQ(ids.size(), 4U);
    EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 8);
}

TEST(ChatReplies, CutOffByTheLimitSayLength) {
    TestServer server{{.words = kCalls, .reply_format = "hermes"}};
    HttpClient client{server.port()};
    const auto answer =
        client.post("/v1/chat/completions", chat(R"("max_tokens":5,)" + tools(kChatWeather)));
    EXPECT_EQ(answer.json().at("choices").at(0).at("finish_reason").as_string(), "length");
}

TEST(ChatReplies, WithoutParallelCallsTheFirstIsTheLast) {
    TestServer server{{.words = kCalls, .reply_format = "hermes"}};
    HttpClient client{server.port()};
    const auto answer = client.post("/v1/chat/completions",
                                    chat(R"("parallel_tool_calls":false,)" + tools(kChatWeather)));
    const json::value choice = answer.json().at("choices").at(0);
    EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1U);
    EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
}

}  // namespace
