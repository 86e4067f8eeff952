// Properties of the parsers on messages that are nearly right: they refuse or accept, and what they
// accept can be used.
#include "daemon/server/protocol/completion_request.hpp"
#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/protocol/response_events.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "tests/daemon/server/golden.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace server {
namespace {

namespace json = boost::json;

constexpr ParseContext kContext{.vocab_size = 1000};

/// Everything a session does with a message between socket and template. @return accepted or not
bool use(const json::object& message) {
    bool is_accepted = false;
    if (auto request = parse_response_request(message, kContext)) {
        is_accepted = true;
        json::array items = request->input.value_or(json::array{});
        const auto error = check_call_pairs(items);
        EXPECT_TRUE(!error || !error->code.empty());
        const json::array messages = to_messages(items, request->instructions);
        EXPECT_LE(messages.size(), items.size() + 1);
        const Truncation truncation{items};
        for (std::size_t i = 0; i < truncation.num_choices(); ++i) {
            const std::size_t size = truncation.shortened(i).size();
            EXPECT_LT(size, i == 0 ? items.size() : truncation.shortened(i - 1).size());
            EXPECT_GT(size, 0U);
        }
        ResponseEvents events{*request, "resp_1", "fp", 1};
        EXPECT_TRUE(json::parse(events.created().text.json).is_object());
        EXPECT_TRUE(json::parse(events.terminal(ResponseEnd::completed, {}, nullptr, 2).text.json)
                        .is_object());
    } else {
        EXPECT_FALSE(request.error().code.empty());
        EXPECT_TRUE(json::parse(error_event(request.error(), "")).is_object());
    }
    is_accepted = parse_completion_request(message, kContext).has_value() || is_accepted;
    is_accepted = parse_chat_request(message, kContext).has_value() || is_accepted;
    return is_accepted;
}

std::vector<json::object> seeds() {
    std::vector<json::object> out;
    for (const char* file : {"client_valid.json", "client_invalid.json"}) {
        const json::value golden = read_golden(file);
        for (const json::value& test_case : golden.at("cases").as_array())
            if (const json::value* message = test_case.as_object().if_contains("message"))
                out.push_back(message->as_object());
    }
    const char* kOthers[] = {
        R"({"model":"m","prompt":["a",[1,2]],"max_tokens":0,"echo":true,"logprobs":2,"n":2})",
        R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
            "function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c",
            "content":"1"}],"tools":[{"type":"function","function":{"name":"f"}}],
            "tool_choice":{"type":"function","function":{"name":"f"}},
            "response_format":{"type":"text"},"stream_options":{"include_usage":true}})"};
    for (const char* text : kOthers) out.push_back(*parse_object(text));
    return out;
}

/// Puts a value of another kind somewhere in the tree.
void mutate(json::value& value, std::mt19937& rng) {
    static const json::value kValues[] = {nullptr,
                                          true,
                                          0,
                                          -1,
                                          1.5,
                                          1e300,
                                          "",
                                          "x",
                                          json::array{},
                                          json::object{},
                                          json::array{json::array{}},
                                          json::object{{"type", "message"}},
                                          "function",
                                          "c"};
    if (value.is_object() && !value.get_object().empty() && rng() % 4 != 0) {
        auto member = value.get_object().begin();
        std::advance(member, rng() % value.get_object().size());
        if (rng() % 8 == 0)
            value.get_object().erase(member);
        else
            mutate(member->value(), rng);
    } else if (value.is_array() && !value.get_array().empty() && rng() % 4 != 0) {
        mutate(value.get_array()[rng() % value.get_array().size()], rng);
    } else {
        value = kValues[rng() % std::size(kValues)];
    }
}

TEST(HostileMessages, WithValuesOfOtherKindsAreRefusedOrUsable) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    const auto messages = seeds();
    int num_accepted = 0;
    for (int i = 0; i < 20'000; ++i) {
        json::value message = messages[rng() % messages.size()];
        for (auto n = rng() % 3; n < 3; ++n) mutate(message, rng);
        if (!message.is_object()) continue;
        SCOPED_TRACE(json::serialize(message));
        num_accepted += use(message.get_object());
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(num_accepted, 100);  // else the mutations would be too wild to test anything
}

TEST(HostileMessages, OfAnyBytesAreRefusedOrUsable) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    const auto messages = seeds();
    int num_parsed = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::string text = json::serialize(messages[rng() % messages.size()]);
        for (auto n = rng() % 4; n < 4; ++n) {
            const std::size_t at = rng() % text.size();
            if (rng() % 3 == 0)
                text.erase(at, 1 + rng() % 4);
            else
                text[at] = static_cast<char>(rng());
            if (text.empty()) text = "{";
        }
        const auto message = parse_object(text, true);
        if (!message) continue;
        ++num_parsed;
        use(*message);
    }
    EXPECT_GT(num_parsed, 100);
}

}  // namespace
}  // namespace server
