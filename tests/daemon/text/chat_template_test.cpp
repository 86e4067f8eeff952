#include "daemon/text/chat_template.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <thread>
#include <vector>

namespace {

using text::RenderRequest;
using text::RenderResult;
using text::TemplateWorker;
using Status = RenderResult::Status;
namespace json = boost::json;

std::string read_file(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    EXPECT_TRUE(in) << path;
    return {std::istreambuf_iterator<char>{in}, {}};
}

const std::string kTemplates = ASSAY_TEST_DATA "/text/templates/";

constexpr std::chrono::milliseconds kAmple{60'000};  // for busy machines; no test waits for it

/// A local time as the golden data froze it.
std::chrono::system_clock::time_point frozen_now() {
    std::tm parts{};
    parts.tm_year = 2026 - 1900;
    parts.tm_mon = 2;
    parts.tm_mday = 14;
    parts.tm_hour = 9;
    parts.tm_min = 26;
    parts.tm_sec = 53;
    parts.tm_isdst = -1;
    return std::chrono::system_clock::from_time_t(std::mktime(&parts));
}

/// Shared, since starting Python takes longer than all renders together. Tests that end workers
/// use their own.
TemplateWorker& shared_worker() {
    static TemplateWorker worker{{.deadline = kAmple, .num_workers = 1}};
    return worker;
}

RenderResult render(TemplateWorker& worker, std::string_view source,
                    std::string_view messages = "[]", std::string_view extra = "") {
    return worker.render(
        {.template_source = source, .messages_json = messages, .extra_json = extra});
}

RenderResult render(std::string_view source, std::string_view messages = "[]",
                    std::string_view extra = "") {
    return render(shared_worker(), source, messages, extra);
}

TEST(TemplateWorker, RendersEveryGoldenCase) {
    const json::value golden = json::parse(read_file(kTemplates + "cases.json"));
    const json::object& conversations = golden.at("conversations").as_object();
    int num_texts = 0, num_errors = 0;
    for (const json::value& entry : golden.at("templates").as_array()) {
        const std::string file{entry.at("file").as_string()};
        const std::string source = read_file(kTemplates + file);
        for (const json::value& c : entry.at("cases").as_array()) {
            const std::string name{c.at("case").as_string()};
            SCOPED_TRACE(file + ", " + name);
            const json::object& conversation = conversations.at(name).as_object();
            const std::string messages = json::serialize(conversation.at("messages"));
            const std::string tools = json::serialize(conversation.at("tools"));
            const std::string extra = json::serialize(conversation.at("extra"));
            const RenderResult result = shared_worker().render(
                {.template_source = source,
                 .messages_json = messages,
                 .tools_json = tools,
                 .extra_json = extra,
                 .bos_token = entry.at("bos_token").as_string(),
                 .eos_token = entry.at("eos_token").as_string(),
                 .add_generation_prompt = conversation.at("add_generation_prompt").as_bool(),
                 .now = frozen_now()});
            if (const json::value* expected = c.as_object().if_contains("expected")) {
                ++num_texts;
                ASSERT_EQ(result.status, Status::ok) << result.message;
                EXPECT_EQ(result.text, std::string_view{expected->as_string()});
                continue;
            }
            ++num_errors;
            EXPECT_EQ(result.error(), base::Errc::template_failed);
            EXPECT_TRUE(result.status == Status::raised || result.status == Status::failed);
            EXPECT_EQ(result.message, std::string_view{c.at("error").at("message").as_string()});
        }
    }
    EXPECT_EQ(num_texts + num_errors, 14 * 27);
    EXPECT_GT(num_errors, 20);
}

TEST(TemplateWorker, RaisedMessagesAreTheTemplatesOwn) {
    const RenderResult result = render("{{ raise_exception('Only users may speak.') }}");
    EXPECT_EQ(result.status, Status::raised);
    EXPECT_EQ(result.message, "Only users may speak.");
}

TEST(TemplateWorker, KeepsKeyOrderAndNumbers) {
    const RenderResult result =
        render("{{ messages | tojson }}",
               R"([{"z":1,"a":1.0,"m":1e-7,"t":"\u00e9<&>'","big":12345678901234567890}])");
    EXPECT_EQ(result.text,
              "[{\"z\": 1, \"a\": 1.0, \"m\": 1e-07, \"t\": \"\xC3\xA9<&>'\", \"big\": "
              "12345678901234567890}]");
}

TEST(TemplateWorker, ToJsonTakesIndent) {
    EXPECT_EQ(render("{{ messages | tojson(indent=2) }}", "[1, {\"b\": 2}]").text,
              "[\n  1,\n  {\n    \"b\": 2\n  }\n]");
}

TEST(TemplateWorker, GenerationTagPrintsItsBody) {
    EXPECT_EQ(render("a{% generation %}b{{ 1 + 1 }}{% endgeneration %}c").text, "ab2c");
}

TEST(TemplateWorker, LoopControlsWork) {
    EXPECT_EQ(
        render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}")
            .text,
        "012");
}

TEST(TemplateWorker, MissingToolsAreNoneAndVariablesArrive) {
    EXPECT_EQ(render("{{ tools is none }} {{ documents is none }} {{ enable_thinking }}", "[]",
                     R"({"enable_thinking": false})")
                  .text,
              "True True False");
}

TEST(TemplateWorker, RequestVariablesCannotReplaceTheConversation) {
    const RenderResult result = render("{{ messages }}", "[]", R"({"messages": ["forged"]})");
    EXPECT_EQ(result.status, Status::raised);
    EXPECT_EQ(result.message, "chat_template_kwargs must not set messages");
}

TEST(TemplateWorker, LoneSurrogatesBecomeReplacementCharacters) {
    EXPECT_EQ(render("{{ messages[0] }}", R"(["a\ud83db \ud83d\ude00"])").text,
              "a\xEF\xBF\xBD"
              "b \xF0\x9F\x98\x80");
}

TEST(TemplateWorker, SyntaxErrorsNameTheLineEachTime) {
    for (int i = 0; i < 2; ++i) {
        const RenderResult result = render("line one\n{% if %}");
        EXPECT_EQ(result.status, Status::failed);
        EXPECT_NE(result.message.find("line 2"), std::string::npos) << result.message;
    }
}

TEST(TemplateWorker, BadJsonCostsOneRequest) {
    EXPECT_EQ(render("{{ messages }}", "[{").status, Status::failed);
    EXPECT_EQ(render("{{ messages }}", std::string(200'000, '[')).status, Status::failed);
    EXPECT_EQ(render("ok").text, "ok");
}

TEST(TemplateWorker, SandboxHoldsAgainstKnownEscapes) {
    const char* const templates[] = {
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ (strftime_now | attr('__globals__'))['os'] }}",
        "{{ ('{0.__class__.__mro__}' | attr('format'))('x') }}",
        "{% set f = '{0.__class__.__mro__}'.format %}{{ f('x') }}",
        "{{ ['{0.__class__.__mro__}'] | map('format', 'x') | list | first | string | length > 100 "
        "}}",
        "{{ lipsum.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append('x') }}",
    };
    for (const char* source : templates) {
        const RenderResult result = render(source);
        SCOPED_TRACE(source);
        EXPECT_TRUE(!result.is_ok() || result.text.find("class") == std::string::npos)
            << result.text;
        EXPECT_EQ(result.text.find("root:"), std::string::npos);
        EXPECT_EQ(result.message.find("Traceback"), std::string::npos);
    }
}

TEST(TemplateWorker, OutputFarBeyondTheInputIsRefused) {
    const RenderResult result =
        render("{% for i in range(20000) %}{{ 'xxxxxxxxxx' * 10 }}{% endfor %}");
    EXPECT_EQ(result.status, Status::raised);
    EXPECT_NE(result.message.find("longer"), std::string::npos) << result.message;
}

TEST(TemplateWorker, MemoryBombIsAnErrorAndTheNextRenderWorks) {
    const RenderResult result = render("{{ 'x' * 2000000000 }}");
    EXPECT_FALSE(result.is_ok());
    EXPECT_NE(result.status, Status::timed_out);
    EXPECT_EQ(render("ok").text, "ok");
}

TEST(TemplateWorker, EndlessTemplateIsStoppedAndCostsOneRequest) {
    TemplateWorker worker{{.deadline = std::chrono::milliseconds{1500}, .num_workers = 1}};
    const RenderResult result = render(
        worker, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
    EXPECT_EQ(result.status, Status::timed_out);
    EXPECT_EQ(result.error(), base::Errc::template_broken);  // not the conversation's fault
    EXPECT_NE(result.message.find("1500 ms"), std::string::npos);
    EXPECT_EQ(render(worker, "ok").text, "ok");
}

TEST(TemplateWorker, ManyTemplatesTakeTurns) {
    for (int round = 0; round < 2; ++round)
        for (int i = 0; i < 40; ++i) {
            const std::string source = "template " + std::to_string(i) + " {{ messages[0] }}";
            EXPECT_EQ(render(source, "[7]").text, "template " + std::to_string(i) + " 7");
        }
    EXPECT_EQ(render("").text, "");
    EXPECT_TRUE(render("").is_ok());
}

TEST(TemplateWorker, ThreadsShareTheWorkers) {
    TemplateWorker worker{{.deadline = kAmple, .num_workers = 2}};
    std::atomic<int> good = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 25; ++i) {
                const std::string n = std::to_string(t * 100 + i);
                if (render(worker, "{{ messages[0] }}!", "[" + n + "]").text == n + "!") ++good;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, 100);
}

TEST(TemplateWorker, WithoutAnInterpreterEveryRenderSaysWhy) {
    TemplateWorker worker{{.python = "/nonexistent/python3"}};
    EXPECT_NE(worker.unavailable_reason().find("/nonexistent/python3"), std::string::npos);
    const RenderResult result = render(worker, "x");
    EXPECT_EQ(result.status, Status::unavailable);
    EXPECT_NE(result.message.find("/nonexistent/python3"), std::string::npos);
}

TEST(TemplateWorker, ProgramThatIsNoWorkerIsUnavailable) {
    TemplateWorker worker{{.python = "/bin/true"}};
    EXPECT_NE(worker.unavailable_reason().find("exit status 0"), std::string::npos)
        << worker.unavailable_reason();
}

TEST(TemplateWorker, OversizedTemplateIsRefused) {
    const RenderResult result = render(std::string(text::kMaxTemplateBytes + 1, 'x'));
    EXPECT_EQ(result.status, Status::failed);
    EXPECT_NE(result.message.find("256 KiB"), std::string::npos);
}

TEST(TemplateWorker, SaysWhatConfinesIt) {
    EXPECT_NE(shared_worker().isolation().find("rlimits"), std::string::npos);
    EXPECT_NE(shared_worker().isolation().find("no_new_privs"), std::string::npos);
    EXPECT_EQ(shared_worker().jinja2_version().substr(0, 2), "3.");
}

}  // namespace
