// The HTTP surfaces over a real socket.
#include "daemon/server/keys.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace {

namespace json = boost::json;
using support::FakeCodec;
using support::FakeEngine;
using support::HttpAnswer;
using support::HttpClient;
using support::TestServer;

constexpr std::int32_t kWord = FakeCodec::kFirstWord;

/// All chunks of a stream but the last line, which must be [DONE].
std::vector<json::object> chunks(const HttpAnswer& answer) {
    std::vector<json::object> out;
    const auto events = answer.events();
    EXPECT_FALSE(events.empty());
    for (const std::string& event : events)
        if (event != "[DONE]") out.push_back(json::parse(event).as_object());
    EXPECT_EQ(events.back(), "[DONE]");
    return out;
}

TEST(Completions, AnswersWholeWithUsageAndFingerprint) {
    TestServer server{{.words = {"Hello", " you"}}};
    HttpClient client{server.port()};
    const auto answer = client.post("/v1/completions", R"({"model":"demo-1b","prompt":"Hi"})");
    ASSERT_EQ(answer.status, 200);
    const json::object body = answer.json();
    EXPECT_EQ(body.at("object").as_string(), "text_completion");
    EXPECT_TRUE(std::string{body.at("id").as_string()}.starts_with("cmpl-"));
    EXPECT_EQ(body.at("system_fingerprint").as_string(), "fp_test");
    EXPECT_EQ(json::serialize(body.at("choices")),
              R"([{"index":0,"text":"Hello you","logprobs":null,"finish_reason":"stop"}])");
    EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 3);  // BOS, H, i
    EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 3);
    EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), 6);
    const auto request = server.engine->requests().at(0);
    EXPECT_EQ(request.prompt, (std::vector<std::int32_t>{FakeCodec::kBos, 'H', 'i'}));
    EXPECT_EQ(request.max_tokens, 16);
    EXPECT_EQ(request.stop_tokens, std::vector<std::int32_t>{FakeCodec::kEog});
}

TEST(Completions, TokenIdsBypassTheTokenizer) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions",
        R"({"model":"demo-1b","prompt":[[65,66],[67]],"n":2,"seed":5,"max_tokens":1,"ignore_eos":true})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::object body = answer.json();
    const json::array& choices = body.at("choices").as_array();
    ASSERT_EQ(choices.size(), 4U);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(choices[static_cast<std::size_t>(i)].at("index").as_int64(), i);
        EXPECT_EQ(choices[static_cast<std::size_t>(i)].at("finish_reason").as_string(), "length");
    }
    const auto requests = server.engine->requests();
    EXPECT_EQ(requests.at(1).prompt, (std::vector<std::int32_t>{65, 66}));
    EXPECT_EQ(requests.at(2).prompt, std::vector<std::int32_t>{67});
    EXPECT_NE(requests.at(0).sampling.seed, requests.at(1).sampling.seed);
    EXPECT_TRUE(requests.at(0).stop_tokens.empty());
    EXPECT_EQ(answer.json().at("usage").at("prompt_tokens").as_int64(), 3);
    EXPECT_EQ(answer.json().at("usage").at("completion_tokens").as_int64(), 4);
}

TEST(Completions, EchoWithLogprobsScoresPromptAndReply) {
    TestServer server{{.words = {",", " you"}}};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions",
        R"({"model":"demo-1b","prompt":[72,105],"max_tokens":2,"echo":true,"logprobs":1,"temperature":0})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::value choice = answer.json().at("choices").at(0);
    EXPECT_EQ(choice.at("text").as_string(), "Hi, you");
    EXPECT_EQ(choice.at("logprobs"), json::parse(R"({"tokens":["H","i",","," you"],
        "token_logprobs":[null,-0.5,-0.5,-0.5],
        "top_logprobs":[null,{"i":-0.5},{",":-0.5},{" you":-0.5}],"text_offset":[0,1,2,3]})"));
}

TEST(Completions, ScoresAPromptAndGeneratesNothing) {
    TestServer server;
    HttpClient client{server.port()};
    const auto answer =
        client.post("/v1/completions",
                    R"({"model":"demo-1b","prompt":"Hi","max_tokens":0,"echo":true,"logprobs":0})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::value choice = answer.json().at("choices").at(0);
    EXPECT_EQ(choice.at("text").as_string(), "Hi");
    EXPECT_EQ(choice.at("logprobs").at("tokens"), json::parse(R"(["<s>","H","i"])"));
    EXPECT_TRUE(choice.at("logprobs").at("top_logprobs").is_null());
    EXPECT_EQ(choice.at("logprobs").at("text_offset"), json::parse("[0,0,1]"));
    EXPECT_EQ(server.engine->num_tokens(), 0U);
}

TEST(Completions, StreamsChunksAndEndsWithDone) {
    TestServer server{{.words = {"Hello", " you"}}};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions",
        R"({"model":"demo-1b","prompt":"Hi","stream":true,"echo":true,"stream_options":{"include_usage":true}})");
    ASSERT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/event-stream"));
    EXPECT_EQ(answer.headers.at("cache-control"), "no-cache");
    const auto all = chunks(answer);
    std::string text;
    for (const json::object& chunk : all) {
        EXPECT_EQ(chunk.at("id"), all.front().at("id"));
        if (&chunk == &all.back()) break;
        EXPECT_TRUE(chunk.at("usage").is_null());
        text += chunk.at("choices").at(0).at("text").as_string();
    }
    EXPECT_EQ(text, "HiHello you");
    EXPECT_EQ(all.at(all.size() - 2).at("choices").at(0).at("finish_reason").as_string(), "stop");
    EXPECT_TRUE(all.back().at("choices").as_array().empty());
    EXPECT_EQ(all.back().at("usage").at("completion_tokens").as_int64(), 3);
}

TEST(Completions, StreamedLogprobsGoOnFromChunkToChunk) {
    TestServer server{{.words = {"ab", "c"}}};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions",
        R"({"model":"demo-1b","prompt":"x","stream":true,"logprobs":0,"return_token_ids":true})");
    const auto all = chunks(answer);
    EXPECT_EQ(all.at(0).at("choices").at(0).at("logprobs").at("text_offset"), json::parse("[0]"));
    EXPECT_EQ(all.at(1).at("choices").at(0).at("logprobs").at("text_offset"), json::parse("[2]"));
    EXPECT_EQ(all.at(1).at("choices").at(0).at("token_ids"), json::array{kWord + 1});
    EXPECT_FALSE(all.at(0).contains("usage"));
}

TEST(Completions, ARefusalOfTheEngineIs503OnEverySurface) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script;
                           script.refuses = true;
                           script.error = base::Errc::queue_full;
                           return script;
                       }}};
    for (const char* stream : {"false", "true"}) {
        for (const auto& [path, body] : std::initializer_list<std::pair<const char*, std::string>>{
                 {"/v1/completions", R"({"model":"demo-1b","prompt":"x","stream":)"},
                 {"/v1/chat/completions",
                  R"({"model":"demo-1b","messages":[{"role":"user","content":"x"}],"stream":)"},
                 {"/v1/responses", R"({"model":"demo-1b","input":"x","stream":)"}}) {
            SCOPED_TRACE(path + body + stream);
            HttpClient client{server.port()};
            const auto answer = client.post(path, body + stream + "}");
            EXPECT_EQ(answer.status, 503);
            EXPECT_EQ(answer.json().at("error").at("code").as_string(), "server_overloaded");
        }
    }
}

TEST(Responses, AFailureIsNotAnswered200) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{FakeCodec::kFirstWord}};
                           script.fail_after = 0;
                           return script;
                       }}};
    HttpClient client{server.port()};
    EXPECT_EQ(client.post("/v1/responses", R"({"model":"demo-1b","input":"x"})").status, 500);
}

TEST(Completions, FailureInMidStreamHasAnErrorAndNoDone) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           return FakeEngine::Script{.tokens = {kWord, kWord}, .fail_after = 1};
                       }}};
    HttpClient client{server.port()};
    const auto answer =
        client.post("/v1/completions", R"({"model":"demo-1b","prompt":"x","stream":true})");
    const auto events = answer.events();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(json::parse(events[1]).at("error").at("code").as_string(), "server_error");
    const auto whole = client.post("/v1/completions", R"({"model":"demo-1b","prompt":"x"})");
    EXPECT_EQ(whole.status, 500);
    EXPECT_EQ(whole.json().at("error").at("type").as_string(), "server_error");
}

TEST(Completions, StopStringIsNotShownUnlessAskedFor) {
    TestServer server{{.words = {"one", " END", " two"}}};
    HttpClient client{server.port()};
    const std::string head = R"({"model":"demo-1b","prompt":"x","stop":" EN")";
    EXPECT_EQ(client.post("/v1/completions", head + "}").json().at("choices").at(0).at("text"),
              "one");
    const auto shown =
        client.post("/v1/completions", head + R"(,"include_stop_str_in_output":true})").json();
    EXPECT_EQ(shown.at("choices").at(0).at("text"), "one EN");
    EXPECT_EQ(shown.at("choices").at(0).at("finish_reason").as_string(), "stop");
    EXPECT_TRUE(support::eventually([&] { return server.engine->num_live() == 0; }));
}

TEST(Completions, SamplingReachesTheEngine) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    ASSERT_EQ(client
                  .post("/v1/completions",
                        R"({"model":"demo-1b","prompt":"x","temperature":0.5,"top_k":40,
        "top_p":0.9,"min_p":0.1,"seed":7,"presence_penalty":0.5,"frequency_penalty":-0.5,
        "repetition_penalty":1.5,"logit_bias":{"5":-100},"min_tokens":2,"stop_token_ids":[9]})")
                  .status,
              200);
    const auto request = server.engine->requests().at(0);
    EXPECT_EQ(request.sampling.temperature, 0.5F);
    EXPECT_EQ(request.sampling.top_k, 40);
    EXPECT_EQ(request.sampling.top_p, 0.9F);
    EXPECT_EQ(request.sampling.min_p, 0.1F);
    EXPECT_EQ(request.sampling.seed, 7U);
    EXPECT_EQ(request.sampling.presence_penalty, 0.5F);
    EXPECT_EQ(request.sampling.frequency_penalty, -0.5F);
    EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
    EXPECT_EQ(request.sampling.logit_bias.at(0), (std::pair<std::int32_t, float>{5, -100}));
    EXPECT_EQ(request.min_tokens, 2);
    EXPECT_EQ(request.stop_tokens, (std::vector<std::int32_t>{9, FakeCodec::kEog}));
}

TEST(Completions, RefusesWhatDoesNotFit) {
    TestServer server{{.context_length = 8}};
    HttpClient client{server.port()};
    const auto long_prompt =
        client.post("/v1/completions", R"({"model":"demo-1b","prompt":"12345678"})");
    EXPECT_EQ(long_prompt.status, 400);
    EXPECT_EQ(long_prompt.json().at("error").at("code").as_string(), "context_length_exceeded");
    const auto other = client.post("/v1/completions", R"({"model":"other","prompt":"1"})");
    EXPECT_EQ(other.status, 404);
    EXPECT_EQ(other.json().at("error").at("code").as_string(), "model_not_found");
    const auto broken = client.post("/v1/completions", R"({"model":)");
    EXPECT_EQ(broken.status, 400);
    EXPECT_EQ(broken.json().at("error").at("code").as_string(), "invalid_json");
    EXPECT_EQ(server.metric(R"(assay_requests_rejected_total{reason="context"})"), "1");
    EXPECT_EQ(server.metric(R"(assay_requests_rejected_total{reason="invalid"})"), "2");
}

TEST(Completions, PromptLogprobsAreOfTheWholePrompt) {
    TestServer server{{.words = {"!"}}};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions",
        R"({"model":"demo-1b","prompt":[72,105],"max_tokens":1,"prompt_logprobs":1})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::value choice = answer.json().at("choices").at(0);
    EXPECT_EQ(choice.at("prompt_logprobs"),
              json::parse(R"([null,{"105":{"logprob":-0.5,"rank":1,"decoded_token":"i"}}])"));
    EXPECT_TRUE(choice.at("logprobs").is_null());
    EXPECT_EQ(choice.at("text").as_string(), "!");
    EXPECT_TRUE(server.engine->requests().at(0).prompt_logprobs);
}

/// 64 prompts with 8 choices each, at an engine that lets two wait and runs one.
TEST(Completions, ManyChoicesTakeFewPlacesInTheQueue) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{FakeCodec::kFirstWord}};
                           script.admit_alone = true;
                           return script;
                       }}};
    server.engine->set_max_waiting(64);
    HttpClient client{server.port()};
    std::string prompts;
    for (int i = 0; i < 64; ++i) prompts += (i == 0 ? "\"" : ",\"") + std::to_string(i) + '"';
    const auto answer = client.post(
        "/v1/completions", R"({"model":"demo-1b","n":8,"max_tokens":2,"prompt":[)" + prompts + "]}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::object body = answer.json();
    ASSERT_EQ(body.at("choices").as_array().size(), 512U);
    for (const json::value& choice : body.at("choices").as_array())
        EXPECT_EQ(choice.at("text").as_string(), "a");
    EXPECT_EQ(server.engine->num_refused(), 0U);
    EXPECT_LE(server.engine->most_waiting(), 32U);
}

TEST(Completions, AChoiceThatFindsTheQueueFullWaitsForTheOthers) {
    TestServer server{{.words = {"a"}, .script = [](const base::Request&) {
                           FakeEngine::Script script{{FakeCodec::kFirstWord}};
                           script.admit_alone = true;
                           script.hold = true;  // until the others have been refused
                           return script;
                       }}};
    server.engine->set_max_waiting(3);
    std::thread releaser{[&server] {
        support::eventually([&server] { return server.engine->num_refused() > 0; });
        server.engine->release();
    }};
    HttpClient client{server.port()};
    const auto answer = client.post(
        "/v1/completions", R"({"model":"demo-1b","n":8,"max_tokens":2,"prompt":["x","y"]})");
    releaser.join();
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json().at("choices").as_array().size(), 16U);
    EXPECT_GT(server.engine->num_refused(), 0U);
}

TEST(Tokenize, TellsTokensOfATextAndOfAConversation) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    const auto text = client.post("/tokenize", R"({"model":"demo-1b","prompt":"Hi"})");
    ASSERT_EQ(text.status, 200) << text.body;
    EXPECT_EQ(text.json(), json::parse(R"({"count":3,"max_model_len":4096,"tokens":[257,72,105],
                                          "token_strs":null})"));
    EXPECT_EQ(client
                  .post("/tokenize",
                        R"({"content":"Hi","add_special":false,"with_pieces":true})")
                  .json(),
              json::parse(R"({"count":2,"max_model_len":4096,"tokens":[72,105],
                              "token_strs":["H","i"]})"));
    const auto chat = client.post(
        "/tokenize", R"({"messages":[{"role":"user","content":"?"}]})");
    EXPECT_EQ(chat.json().at("count").as_int64(), 18);  // BOS, "user:?", line end, "assistant:"
    const auto back = client.post("/detokenize", R"({"tokens":[72,105,256]})");
    EXPECT_EQ(back.json().at("prompt").as_string(), "Hi<eos>");
}

TEST(Tokenize, RefusesWhatIsNone) {
    TestServer server;
    HttpClient client{server.port()};
    const auto code_of = [&](const char* path, const char* body) {
        const auto answer = client.post(path, body);
        return std::to_string(answer.status) + " " +
               std::string{answer.json().at("error").at("code").as_string()};
    };
    EXPECT_EQ(code_of("/tokenize", R"({})"), "400 missing_required_parameter");
    EXPECT_EQ(code_of("/tokenize", R"({"prompt":5})"), "400 invalid_type");
    EXPECT_EQ(code_of("/tokenize", R"({"prompt":"x","model":"other"})"), "404 model_not_found");
    EXPECT_EQ(code_of("/tokenize", R"({"messages":[{"role":"user","content":"refuse!"}]})"),
              "400 template_failed");
    EXPECT_EQ(code_of("/detokenize", R"({"tokens":[1000]})"), "400 integer_above_max_value");
    EXPECT_EQ(code_of("/detokenize", R"({})"), "400 missing_required_parameter");
    EXPECT_EQ(client.request("GET", "/tokenize").status, 405);
}

TEST(Chat, AnswersWholeAndStreamed) {
    TestServer server{{.words = {"Yes", "."}}};
    HttpClient client{server.port()};
    const std::string head = R"({"model":"demo","messages":[{"role":"user","content":"?"}])";
    const auto whole = client.post("/v1/chat/completions", head + "}");
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(whole.json().at("object").as_string(), "chat.completion");
    EXPECT_EQ(json::serialize(whole.json().at("choices")),
              R"([{"index":0,"message":{"role":"assistant","content":"Yes.","refusal":null},)"
              R"("logprobs":null,"finish_reason":"stop"}])");
    const auto requests = server.engine->requests();
    const auto& prompt = requests.at(0).prompt;
    EXPECT_EQ(prompt.at(0), FakeCodec::kBos);
    EXPECT_EQ(std::string(prompt.begin() + 1, prompt.end()), "user:?\nassistant:");

    const auto all = chunks(client.post(
        "/v1/chat/completions",
        head +
            R"(,"stream":true,"logprobs":true,"top_logprobs":1,"stream_options":{"include_usage":true}})"));
    ASSERT_EQ(all.size(), 5U);
    EXPECT_EQ(
        json::serialize(all[0].at("choices")),
        R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])");
    EXPECT_EQ(json::serialize(all[1].at("choices").at(0).at("delta")), R"({"content":"Yes"})");
    EXPECT_EQ(all[1].at("choices").at(0).at("logprobs").at("content").at(0).at("token").as_string(),
              "Yes");
    EXPECT_EQ(json::serialize(all[3].at("choices")),
              R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}])");
    EXPECT_EQ(all[4].at("usage").at("completion_tokens").as_int64(), 3);
}

TEST(Chat, RefusalNamesTheMessages) {
    TestServer server;
    HttpClient client{server.port()};
    const auto refused =
        client.post("/v1/chat/completions",
                    R"({"model":"demo-1b","messages":[{"role":"user","content":"refuse!"}]})");
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json().at("error").at("param").as_string(), "messages");
    const auto schema =
        client.post("/v1/chat/completions",
                    R"({"model":"demo-1b","messages":[{"role":"user","content":"x"}],
                                        "response_format":{"type":"json_object"}})");
    EXPECT_EQ(schema.json().at("error").at("code").as_string(), "unsupported_value");
}

TEST(Responses, OverHttpWholeAndStreamedAsOverTheSocket) {
    TestServer server{{.words = {"The", " cat"}}};
    HttpClient client{server.port()};
    const auto whole = client.post("/v1/responses", R"({"model":"demo-1b","input":"x"})");
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(whole.json().at("status").as_string(), "completed");
    const auto streamed =
        client.post("/v1/responses", R"({"model":"demo-1b","input":"x","stream":true})");
    const auto events = streamed.events();
    ASSERT_EQ(events.size(), 10U);
    EXPECT_NE(streamed.body.find("event: response.created\ndata: {\"type\":\"response.created\""),
              std::string::npos);
    EXPECT_EQ(json::parse(events.back()).at("type").as_string(), "response.completed");
    EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);

    support::WsClient socket{server.port()};
    const auto over_socket =
        socket.turn(R"({"type":"response.create","model":"demo-1b","input":"x"})");
    ASSERT_EQ(over_socket.size(), events.size());
    for (std::size_t i = 0; i < events.size(); ++i)
        EXPECT_EQ(json::parse(events[i]).at("type"), over_socket[i].at("type"));
}

TEST(Http, ServesModelsHealthReadinessAndMetrics) {
    TestServer server;
    HttpClient client{server.port()};
    EXPECT_EQ(client.get("/healthz").status, 200);
    EXPECT_EQ(client.get("/readyz").status, 200);
    const auto models = client.get("/v1/models");
    EXPECT_EQ(models.json().at("object").as_string(), "list");
    EXPECT_EQ(models.json().at("data").at(0).at("id").as_string(), "demo-1b");
    EXPECT_EQ(models.json().at("data").at(0).at("context_length").as_int64(), 4096);
    EXPECT_EQ(client.get("/v1/models/demo").json().at("id").as_string(), "demo");
    EXPECT_EQ(client.get("/v1/models/nope").status, 404);
    const auto metrics = client.get("/metrics");
    EXPECT_EQ(metrics.status, 200);
    EXPECT_NE(metrics.body.find("\nassay_ready 1\n"), std::string::npos);
    const auto head = client.request("HEAD", "/healthz");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(client.get("/healthz?x=1").status, 200);  // the same connection goes on
}

TEST(Http, UnknownPathsAndWrongMethodsAreNamed) {
    TestServer server;
    const auto nowhere = HttpClient{server.port()}.get("/v2/responses");
    EXPECT_EQ(nowhere.status, 404);
    EXPECT_EQ(nowhere.json().at("error").at("code").as_string(), "not_found");
    const auto wrong = HttpClient{server.port()}.request("DELETE", "/v1/completions");
    EXPECT_EQ(wrong.status, 405);
    EXPECT_EQ(wrong.headers.at("allow"), "POST");
    EXPECT_EQ(HttpClient{server.port()}.request("POST", "/healthz").status, 405);
}

TEST(Http, KeysAreCheckedBeforeAnythingIsRead) {
    TestServer server{{.options = {.api_keys = {server::make_key("alice", "sk-1")}}, .words = {"x"}}};
    const std::string body = R"({"model":"demo-1b","prompt":"x"})";
    const auto refused = HttpClient{server.port()}.post("/v1/completions", body);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(refused.json().at("error").at("code").as_string(), "invalid_api_key");
    EXPECT_EQ(HttpClient{server.port()}
                  .request("POST", "/v1/completions", body, {{"authorization", "Bearer sk-1"}})
                  .status,
              200);
    EXPECT_EQ(HttpClient{server.port()}.get("/healthz").status, 200);
    ASSERT_TRUE(support::eventually([&] { return server.access().size() == 3; }));
    EXPECT_EQ(server.access().at(1).key_label, "alice");
    EXPECT_EQ(server.access().at(1).path, "/v1/completions");
}

TEST(Http, ForeignOriginsAndHostsAreRefused) {
    TestServer server{{.options = {.allowed_origins = {"https://app.example"}}}};
    const auto evil = HttpClient{server.port()}.request("GET", "/v1/models", "",
                                                        {{"origin", "https://evil.example"}});
    EXPECT_EQ(evil.status, 403);
    EXPECT_EQ(evil.json().at("error").at("code").as_string(), "origin_not_allowed");
    const auto fine = HttpClient{server.port()}.request("GET", "/v1/models", "",
                                                        {{"origin", "https://app.example"}});
    EXPECT_EQ(fine.status, 200);
    EXPECT_EQ(fine.headers.at("access-control-allow-origin"), "https://app.example");
    const auto asked = HttpClient{server.port()}.request("OPTIONS", "/v1/completions", "",
                                                         {{"origin", "https://app.example"}});
    EXPECT_EQ(asked.status, 204);
    HttpClient rebound{server.port()};
    rebound.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_NE(rebound.read_all().find("host_not_allowed"), std::string::npos);
}

TEST(Http, HeadsAndBodiesAreBounded) {
    server::Options options;
    options.limits.max_head_bytes = 2048;
    options.limits.max_body_bytes = 1000;
    TestServer server{{.options = std::move(options)}};
    const auto head = HttpClient{server.port()}.request("GET", "/healthz", "",
                                                        {{"x-long", std::string(4000, 'x')}});
    EXPECT_EQ(head.status, 431);
    const auto body = HttpClient{server.port()}.post("/v1/completions", std::string(1001, ' '));
    EXPECT_EQ(body.status, 413);
    EXPECT_EQ(body.json().at("error").at("code").as_string(), "request_too_large");
    HttpClient chunked{server.port()};
    chunked.send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        "\r\n800\r\n" +
        std::string(2048, ' ') + "\r\n0\r\n\r\n");
    EXPECT_NE(chunked.read_all().find("413 "), std::string::npos);
    HttpClient garbage{server.port()};
    garbage.send("\x16\x03\x01 hello\r\n\r\n");
    EXPECT_NE(garbage.read_all().find("400 "), std::string::npos);
}

std::string raw(std::uint16_t port, std::string_view request) {
    HttpClient client{port};
    client.send(request);
    return client.read_all();
}

TEST(Http, ATargetMayBeAWholeUrl) {
    TestServer server;
    EXPECT_TRUE(raw(server.port(),
                    "GET http://localhost:1/healthz?x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    .starts_with("HTTP/1.1 200"));
    // Its authority counts, not the Host header.
    EXPECT_TRUE(raw(server.port(),
                    "GET HTTP://localhost/v1/models HTTP/1.1\r\nHost: evil.example\r\n"
                    "Connection: close\r\n\r\n")
                    .starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(raw(server.port(),
                    "GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    .starts_with("HTTP/1.1 403"));
    EXPECT_TRUE(raw(server.port(), "GET http://localhost HTTP/1.1\r\nHost: a\r\n\r\n")
                    .starts_with("HTTP/1.1 404"));
}

TEST(Http, OneHostIsNeeded) {
    TestServer server;
    EXPECT_TRUE(raw(server.port(), "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    EXPECT_TRUE(raw(server.port(), "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
                    .starts_with("HTTP/1.1 400"));
    EXPECT_TRUE(raw(server.port(), "GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
}

TEST(Http, AChunkOfNoSizeIsABadRequest) {
    TestServer server;
    EXPECT_TRUE(raw(server.port(),
                    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")
                    .starts_with("HTTP/1.1 400"));
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    const std::string body = R"({"model":"demo-1b","prompt":"Hi"})";
    const std::string post =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    client.send(post + "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string all = client.read_all();
    const auto first = all.find("HTTP/1.1 200"), second = all.find("HTTP/1.1 404");
    EXPECT_NE(first, std::string::npos);
    EXPECT_NE(second, std::string::npos);
    EXPECT_LT(first, second);
}

TEST(Http, ExpectContinueIsAnswered) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    const auto answer =
        client.request("POST", "/v1/completions", R"({"model":"demo-1b","prompt":"Hi"})",
                       {{"expect", "100-continue"}});
    EXPECT_EQ(answer.status, 200);
}

TEST(Http, AnOldClientGetsItsStreamWithoutChunks) {
    TestServer server{{.words = {"x"}}};
    HttpClient client{server.port()};
    const std::string body = R"({"model":"demo-1b","prompt":"Hi","stream":true})";
    client.send("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    const std::string all = client.read_all();
    EXPECT_EQ(all.find("chunked"), std::string::npos);
    EXPECT_TRUE(all.ends_with("data: [DONE]\n\n")) << all;
}

}  // namespace
