#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/completion_text.hpp"
#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "tests/daemon/server/golden.hpp"
#include "tests/support/fake_codec.hpp"

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

namespace server {
namespace {

namespace json = boost::json;

constexpr ParseContext kContext{.vocab_size = 1000};

Parsed<CompletionRequest> completion(std::string_view text) {
    return parse_completion_request(*parse_object(text), kContext);
}

std::string code_of(const Parsed<CompletionRequest>& parsed) {
    return parsed ? "accepted" : parsed.error().code + " " + parsed.error().param;
}

TEST(JsonText, EscapesWhatJsonForbidsAndNothingElse) {
    std::string out;
    append_string(out, std::string_view{"a\"b\\c\n\x01\xC3\xA9/"});
    EXPECT_EQ(out, "\"a\\\"b\\\\c\\n\\u0001\xC3\xA9/\"");
    EXPECT_EQ(json::parse(out).as_string(), "a\"b\\c\n\x01\xC3\xA9/");
}

TEST(JsonText, WritesNumbersThatJsonCannotHold) {
    std::string out;
    append_number(out, std::numeric_limits<float>::quiet_NaN());
    out += ' ';
    append_number(out, -std::numeric_limits<float>::infinity());
    out += ' ';
    append_number(out, -0.11F);
    EXPECT_EQ(out, "null -9999 -0.11");
}

TEST(JsonText, AcceptsNestingUpTo128) {
    const auto nested = [](int depth) {
        return R"({"a":)" + std::string(static_cast<std::size_t>(depth), '[') +
               std::string(static_cast<std::size_t>(depth), ']') + "}";
    };
    EXPECT_TRUE(parse_object(nested(120)));
    EXPECT_FALSE(parse_object(nested(129)));
}

TEST(ResponseRequest, EveryGoldenMessageThatCreatesIsAccepted) {
    const json::value golden = read_golden("client_valid.json");
    int num_checked = 0;
    for (const json::value& test_case : golden.at("cases").as_array()) {
        const json::object& message = test_case.at("message").as_object();
        if (message.at("type") != "response.create") continue;
        const auto parsed = parse_response_request(message, kContext);
        EXPECT_TRUE(parsed) << test_case.at("id") << ": " << (parsed ? "" : parsed.error().message);
        ++num_checked;
    }
    EXPECT_EQ(num_checked, 40);
}

TEST(ResponseRequest, ReadsSamplingAndItsExtensions) {
    const auto parsed = parse_response_request(
        *parse_object(R"({"model":"m","input":"hi","temperature":0,"top_p":0.9,"top_k":-1,
            "min_p":0.05,"seed":-7,"stop":["\n\n",""],"logit_bias":{"15":-100},
            "max_output_tokens":32.0,"min_tokens":1,"repetition_penalty":1.1})"),
        kContext);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->params.sampling.temperature, 0.0F);
    EXPECT_EQ(parsed->params.sampling.top_p, 0.9F);
    EXPECT_EQ(parsed->params.sampling.top_k, 0);
    EXPECT_EQ(parsed->params.seed, -7);
    EXPECT_EQ(parsed->params.stop, std::vector<std::string>{"\n\n"});
    EXPECT_EQ(parsed->params.sampling.logit_bias.at(0), (std::pair<std::int32_t, float>{15, -100}));
    EXPECT_EQ(parsed->params.max_tokens, 32);
}

TEST(ResponseRequest, OverHttpRefusesWhatOnlyASocketHas) {
    ParseContext http = kContext;
    http.is_http = true;
    const auto parsed =
        parse_response_request(*parse_object(R"({"model":"m","input":"x","stream_id":"a"})"), http);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, "unknown_parameter");
    EXPECT_EQ(parsed.error().param, "stream_id");
}

TEST(ResponseRequest, ReportsTheFirstMistakeInTheDocument) {
    const auto parsed = parse_response_request(
        *parse_object(R"({"model":"m","top_p":7,"temperature":"hot","input":5})"), kContext);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().param, "top_p");
}

TEST(Conversation, BecomesMessagesForTheTemplate) {
    const auto context = json::parse(R"([
        {"role":"developer","content":"D"},
        {"role":"user","content":[{"type":"input_text","text":"w"},{"type":"input_text","text":"?"}]},
        {"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},
        {"type":"function_call_output","call_id":"c","output":"sunny"},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Sun."}]}])");
    EXPECT_EQ(json::serialize(to_messages(context.as_array(), "be brief")),
              R"([{"role":"system","content":"be brief"},{"role":"system","content":"D"},)"
              R"({"role":"user","content":"w?"},)"
              R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
              R"({"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}}]},)"
              R"({"role":"tool","tool_call_id":"c","content":"sunny"},)"
              R"({"role":"assistant","content":"Sun."}])");
}

json::array items(std::string_view text) {
    return json::parse(text).as_array();
}

TEST(Truncation, DropsTheOldestButNeverSystemOrHalfACall) {
    const json::array context = items(R"([{"role":"system","content":"s"},
        {"role":"user","content":"first"},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c","output":"1"},
        {"role":"assistant","content":"A"},
        {"role":"user","content":"old"},
        {"role":"assistant","content":"B"},
        {"role":"user","content":"new"}])");
    const Truncation truncation{context};
    ASSERT_EQ(truncation.num_choices(), 2U);  // turn by turn: each rest begins with the user
    EXPECT_EQ(json::serialize(truncation.shortened(0)),
              R"([{"role":"system","content":"s"},{"role":"user","content":"old"},)"
              R"({"role":"assistant","content":"B"},{"role":"user","content":"new"}])");
    EXPECT_EQ(json::serialize(truncation.shortened(1)),
              R"([{"role":"system","content":"s"},{"role":"user","content":"new"}])");
}

TEST(Truncation, BeginsAnywhereWhereNoTurnIsShortEnough) {
    const json::array context = items(R"([{"role":"user","content":"q"},
        {"type":"function_call","call_id":"a","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"a","output":"1"},
        {"type":"function_call","call_id":"b","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"b","output":"2"}])");
    const Truncation truncation{context};
    ASSERT_EQ(truncation.num_choices(), 2U);
    EXPECT_EQ(truncation.shortened(0).size(), 4U);
    EXPECT_EQ(truncation.shortened(1).size(), 2U);  // the last call and its output stay together
    EXPECT_FALSE(check_call_pairs(truncation.shortened(1)));
}

TEST(Truncation, OfOneItemIsNone) {
    EXPECT_EQ(Truncation{items(R"([{"role":"user","content":"x"}])")}.num_choices(), 0U);
    EXPECT_EQ(Truncation{json::array{}}.num_choices(), 0U);
}

TEST(Conversation, ReasoningWithoutAnAnswerIsATurnOfItsOwn) {
    const json::array context = items(R"([{"role":"user","content":"q"},
        {"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"cut"}]},
        {"role":"user","content":"again"},
        {"role":"assistant","content":"A"}])");
    EXPECT_EQ(json::serialize(to_messages(context, "")),
              R"([{"role":"user","content":"q"},)"
              R"({"role":"assistant","content":"","reasoning_content":"cut"},)"
              R"({"role":"user","content":"again"},{"role":"assistant","content":"A"}])");
}

ResponseRequest response(std::string_view fields) {
    const auto parsed = parse_response_request(
        *parse_object(R"({"model":"m","input":"x",)" + std::string{fields} + "}"), kContext);
    EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
    return *parsed;
}

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object","b":1,"a":2}},
        {"type":"web_search"},{"type":"function","name":"g","parameters":null}])";

TEST(OutputRules, SayWhichToolsMayBeCalled) {
    using Calls = base::OutputRules::Calls;
    const auto rules = response(kTools).rules;
    EXPECT_EQ(rules.calls, Calls::allowed);
    ASSERT_EQ(rules.tools.size(), 2U);
    EXPECT_EQ(rules.tools[0].parameters, R"({"type":"object","b":1,"a":2})");  // in their order
    EXPECT_TRUE(rules.tools[0].strict);
    EXPECT_FALSE(rules.tools[1].strict);
    EXPECT_EQ(rules.tools[1].parameters, R"({"type":"object","properties":{}})");
    EXPECT_TRUE(rules.parallel_calls);

    const auto with = [](std::string_view choice) {
        return response(std::string{kTools} + R"(,"tool_choice":)" + std::string{choice});
    };
    EXPECT_EQ(with(R"("none")").rules.calls, Calls::none);
    EXPECT_TRUE(with(R"("none")").functions.empty());
    EXPECT_EQ(with(R"("required")").rules.calls, Calls::required);
    const auto named = with(R"({"type":"function","name":"g"})");
    EXPECT_EQ(named.rules.calls, Calls::required);
    ASSERT_EQ(named.rules.tools.size(), 1U);
    EXPECT_EQ(named.rules.tools[0].name, "g");
    EXPECT_EQ(named.functions.size(), 1U);
    const auto allowed = with(
        R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]})");
    EXPECT_EQ(allowed.rules.calls, Calls::allowed);
    ASSERT_EQ(allowed.functions.size(), 1U);
    EXPECT_EQ(allowed.functions[0].at("function").at("name").as_string(), "f");
    EXPECT_FALSE(response(R"("parallel_tool_calls":false)").rules.parallel_calls);
}

TEST(OutputRules, AreTheSameFromBothSurfaces) {
    const auto responses = response(
        R"("text":{"format":{"type":"json_schema","name":"p","strict":true,
            "schema":{"type":"object","properties":{"y":{"type":"integer"},"x":{}}}}})");
    const auto chat = parse_chat_request(
        *parse_object(R"({"model":"m","messages":[{"role":"user","content":"x"}],
            "response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,
            "schema":{"type":"object","properties":{"y":{"type":"integer"},"x":{}}}}}})"),
        kContext);
    ASSERT_TRUE(chat);
    for (const base::OutputRules& rules : {responses.rules, chat->rules}) {
        EXPECT_EQ(rules.form, base::OutputRules::Form::json_schema);
        EXPECT_EQ(rules.schema_name, "p");
        EXPECT_TRUE(rules.strict);
        EXPECT_EQ(rules.schema, R"({"type":"object","properties":{"y":{"type":"integer"},"x":{}}})");
        EXPECT_FALSE(rules.is_free());
    }
    EXPECT_EQ(response(R"("text":{"format":{"type":"json_object"}})").rules.form,
              base::OutputRules::Form::json_object);
    EXPECT_TRUE(response(R"("text":{"format":{"type":"text"}})").rules.is_free());
}

TEST(OutputRules, AreRefusedByTheNameOfTheField) {
    const auto error_of = [](std::string_view format) {
        const auto parsed = parse_chat_request(
            *parse_object(R"({"model":"m","messages":[{"role":"user","content":"x"}],
                "response_format":)" + std::string{format} + "}"),
            kContext);
        return parsed ? "accepted" : parsed.error().code + " " + parsed.error().param;
    };
    EXPECT_EQ(error_of(R"({"type":"json_schema"})"),
              "missing_required_parameter response_format.json_schema");
    EXPECT_EQ(error_of(R"({"type":"json_schema","json_schema":{"name":"a"}})"),
              "missing_required_parameter response_format.json_schema.schema");
    EXPECT_EQ(error_of(R"({"type":"json_schema","json_schema":{"name":"a","schema":{"type":"t"}}})"),
              "invalid_json_schema response_format.json_schema.schema");
    EXPECT_EQ(error_of(R"({"type":"yaml"})"), "invalid_value response_format.type");
}

TEST(CompletionRequest, TakesPromptsInAllFourForms) {
    EXPECT_EQ(std::get<std::string>(completion(R"({"model":"m","prompt":"Hi"})")->prompts.at(0)),
              "Hi");
    EXPECT_EQ(completion(R"({"model":"m","prompt":["Hi","Yes"]})")->prompts.size(), 2U);
    const std::vector<std::int32_t> ids{1, 15};
    EXPECT_EQ(std::get<1>(completion(R"({"model":"m","prompt":[1,15]})")->prompts.at(0)), ids);
    EXPECT_EQ(std::get<1>(completion(R"({"model":"m","prompt":[[2],[1,15]]})")->prompts.at(1)),
              ids);
    EXPECT_EQ(completion(R"({"model":"m","prompt":"Hi"})")->params.max_tokens, 16);
}

TEST(CompletionRequest, RefusesWhatCannotBe) {
    EXPECT_EQ(code_of(completion(R"({"model":"m"})")), "missing_required_parameter prompt");
    EXPECT_EQ(code_of(completion(R"({"prompt":"x"})")), "missing_required_parameter model");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":[]})")), "empty_array prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":[[]]})")), "empty_array prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":[1000]})")), "invalid_value prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":[-1]})")), "invalid_value prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":[1,"a"]})")), "invalid_type prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":{"a":1}})")), "invalid_type prompt");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","n":9})")),
              "integer_above_max_value n");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","logprobs":21})")),
              "integer_above_max_value logprobs");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","max_tokens":0})")),
              "integer_below_min_value max_tokens");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","max_tokens":0,"echo":true})")),
              "accepted");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","suffix":"y"})")),
              "unsupported_parameter suffix");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","best_of":3})")),
              "unsupported_parameter best_of");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","stop_token_ids":[1000]})")),
              "integer_above_max_value stop_token_ids[0]");
}

TEST(ChatRequest, NormalisesMessages) {
    const auto parsed = parse_chat_request(
        *parse_object(R"({"model":"m","max_tokens":5,"max_completion_tokens":7,"messages":[
            {"role":"user","content":[{"type":"text","text":"a"}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
             "function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c","content":"1"}]})"),
        kContext);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->params.max_tokens, 7);
    EXPECT_EQ(json::serialize(parsed->messages),
              R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[)"
              R"({"id":"c","type":"function","function":{"name":"f","arguments":{}}}]},)"
              R"({"role":"tool","tool_call_id":"c","content":"1"}])");
}

TEST(ChatRequest, TakesACallWithoutAnId) {
    const auto parsed = parse_chat_request(
        *parse_object(R"({"model":"m","messages":[{"role":"user","content":"a"},
            {"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function",
             "function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c","content":"1"}]})"),
        kContext);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->messages.at(1).at("tool_calls").at(0).at("id").as_string(), "");
}

TEST(GenerationParams, OfMoreTokensThanTheLimitAreRefused) {
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","max_tokens":4,"min_tokens":5})")),
              "invalid_value min_tokens");
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","max_tokens":5,"min_tokens":5})")),
              "accepted");
    const auto chat = parse_chat_request(
        *parse_object(R"({"model":"m","messages":[{"role":"user","content":"x"}],"min_tokens":9,
            "max_completion_tokens":8})"),
        kContext);
    ASSERT_FALSE(chat);
    EXPECT_EQ(chat.error().param, "min_tokens");
}

TEST(GenerationParams, BoundsAreToldToTheLastDigit) {
    const auto parsed = completion(R"({"model":"m","prompt":"x","seed":9223372036854775808})");
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().message,
              "Invalid 'seed': expected a value <= 9223372036854775807.");
}

TEST(CompletionRequest, SaysWhatAPromptMayBe) {
    const auto parsed = completion(R"({"model":"m","prompt":5})");
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message.find("a string, an array of strings"), std::string::npos);
}

TEST(CompletionRequest, RefusesPromptLogprobsInAStream) {
    EXPECT_EQ(code_of(completion(R"({"model":"m","prompt":"x","prompt_logprobs":1,"stream":true})")),
              "unsupported_value prompt_logprobs");
}

TEST(LegacyLogprobs, MatchTheGoldenExample) {
    const support::FakeCodec codec{{"Hi", " there", ",", " you", "!", " how"}};
    constexpr std::int32_t kHi = support::FakeCodec::kFirstWord;
    LegacyLogprobs logprobs{2, codec};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    logprobs.add({kHi, {nan, {}}});
    logprobs.add({kHi + 1, {-3.2F, {{kHi + 4, -0.8F}, {kHi + 1, -3.2F}}}});
    logprobs.add({kHi + 2, {-0.9F, {{kHi + 2, -0.9F}, {kHi + 4, -1.2F}}}});
    logprobs.add({kHi + 3, {-1.4F, {{kHi + 3, -1.4F}, {kHi + 5, -1.5F}}}});
    const json::value golden = read_golden("http_examples.json")
                                   .at("completions_non_stream_echo_logprobs")
                                   .at("response")
                                   .at("choices")
                                   .at(0)
                                   .at("logprobs");
    EXPECT_EQ(json::parse(logprobs.take()), golden);
}

TEST(LegacyLogprobs, KeepTheChosenTokenAndNameRawBytes) {
    const support::FakeCodec codec;
    LegacyLogprobs logprobs{1, codec};
    logprobs.add({0xC3, {-2.0F, {{'a', -0.5F}}}});
    EXPECT_EQ(json::parse(logprobs.take()),
              json::parse(R"({"tokens":["bytes:\\xc3"],"token_logprobs":[-2],
                  "top_logprobs":[{"a":-0.5,"bytes:\\xc3":-2}],"text_offset":[0]})"));
}

TEST(Errors, EveryErrcHasARowWithAStatusAndACode) {
    const std::pair<base::Errc, std::pair<int, std::string>> kRows[] = {
        {base::Errc::queue_full, {503, "server_overloaded"}},
        {base::Errc::kv_exhausted, {503, "server_overloaded"}},
        {base::Errc::prompt_too_long, {400, "context_length_exceeded"}},
        {base::Errc::cancelled, {499, "cancelled"}},
        {base::Errc::draining, {503, "draining"}},
        {base::Errc::not_ready, {503, "model_not_ready"}},
        {base::Errc::template_failed, {400, "template_failed"}},
        {base::Errc::template_broken, {500, "server_error"}},
        {base::Errc::queue_timeout, {503, "server_overloaded"}},
        {base::Errc::device_lost, {500, "server_error"}},
        {base::Errc::deadline, {504, "deadline_exceeded"}},
    };
    for (const auto& [errc, row] : kRows) {
        const ApiError error = from_errc(errc, "detail");
        EXPECT_EQ(error.status, row.first);
        EXPECT_EQ(error.code, row.second);
        EXPECT_EQ(error.status == 503, error.retry_after_seconds > 0) << row.second;
    }
}

TEST(Errors, SayNothingOfTheInsideOfABackend) {
    EXPECT_EQ(from_errc(base::Errc::device_lost, "cuda error at 0x7f12").message.find("0x7f12"),
              std::string::npos);
}

TEST(Errors, TellAWaitThatWasTooLongFromAFullQueue) {
    EXPECT_NE(from_errc(base::Errc::queue_timeout).message,
              from_errc(base::Errc::queue_full).message);
}

TEST(Errors, OfTheTemplateGoToTheLogUnlessTheClientMayActOnThem) {
    const ApiError broken = from_errc(base::Errc::template_broken, "killed after 2000 ms");
    EXPECT_EQ(broken.log, "killed after 2000 ms");
    EXPECT_EQ(error_body(broken).find("2000"), std::string::npos);
    EXPECT_EQ(from_errc(base::Errc::template_failed, "no system role").log, "");
}

TEST(Errors, OfTheServerAreNoMistakesOfTheClient) {
    EXPECT_TRUE(is_clients_mistake(invalid_value("p", "m")));
    EXPECT_FALSE(is_clients_mistake(overloaded("busy")));
    EXPECT_FALSE(is_clients_mistake(draining()));
    EXPECT_FALSE(is_clients_mistake({429, "rate_limit_error", "websocket_queue_full", "m"}));
    EXPECT_FALSE(
        is_clients_mistake(invalid_request("websocket_connection_limit_reached", "", "old")));
}

TEST(Errors, HaveAllFourMembers) {
    EXPECT_EQ(error_body({429, "rate_limit_error", "", "m", ""}),
              R"({"error":{"message":"m","type":"rate_limit_error","param":null,"code":null}})");
    EXPECT_EQ(error_event({503, "server_error", "c", "m", "", 2}, "lane"),
              R"({"type":"error","status":503,"error":{"message":"m","type":"server_error",)"
              R"("param":null,"code":"c","headers":{"retry-after":"2"}},"stream_id":"lane"})");
}

}  // namespace
}  // namespace server
