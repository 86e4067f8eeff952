// Responses that outlive their connection.
#include "daemon/server/session/response_store.hpp"

#include "daemon/server/keys.hpp"
#include "tests/daemon/server/sequences.hpp"
#include "tests/support/test_server.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace {

using namespace sequences;
using namespace std::chrono_literals;
using server::PastResponse;
using server::ResponseStore;
using support::HttpClient;
using support::TestServer;
using support::WsClient;

std::shared_ptr<const PastResponse> past(const std::string& id, std::size_t bytes,
                                         const std::string& owner = "") {
    auto out = std::make_shared<PastResponse>();
    out->id = id;
    out->owner = owner;
    out->items = json::parse(R"([{"role":"user","content":"q","id":"given"},
                                 {"type":"message","id":"msg_)" + id + R"("}])")
                     .as_array();
    out->num_given = 1;
    out->bytes = bytes;
    return out;
}

const base::Clock::time_point kStart{1h};

TEST(ResponseStore, IsBoundedInBytesAndTheOldestGoesFirst) {
    ResponseStore store{100, 1h};
    store.put(past("a", 40), kStart);
    store.put(past("b", 40), kStart);
    store.put(past("c", 40), kStart);
    EXPECT_EQ(store.find("a", "", kStart), nullptr);
    EXPECT_EQ(store.find_item("msg_a", "", kStart), nullptr);
    EXPECT_NE(store.find("b", "", kStart), nullptr);
    EXPECT_EQ(store.find_item("msg_c", "", kStart)->at("id").as_string(), "msg_c");
    EXPECT_EQ(store.bytes(), 80U);
    store.put(past("huge", 101), kStart);
    EXPECT_EQ(store.find("huge", "", kStart), nullptr);
    EXPECT_EQ(store.bytes(), 80U);
}

TEST(ResponseStore, ForgetsWhatIsTooOld) {
    ResponseStore store{100, 1min};
    store.put(past("a", 1), kStart);
    store.put(past("b", 1), kStart + 50s);
    EXPECT_NE(store.find("a", "", kStart + 60s), nullptr);
    EXPECT_EQ(store.find("a", "", kStart + 61s), nullptr);
    EXPECT_NE(store.find("b", "", kStart + 61s), nullptr);
    EXPECT_EQ(store.bytes(), 1U);
}

TEST(ResponseStore, ShowsNobodyWhatIsAnothers) {
    ResponseStore store{100, 1h};
    store.put(past("a", 1, "alice"), kStart);
    EXPECT_EQ(store.find("a", "bob", kStart), nullptr);
    EXPECT_EQ(store.find_item("msg_a", "bob", kStart), nullptr);
    EXPECT_FALSE(store.erase("a", "bob", kStart));
    EXPECT_TRUE(store.erase("a", "alice", kStart));
    EXPECT_FALSE(store.erase("a", "alice", kStart));
    EXPECT_EQ(store.bytes(), 0U);
}

TEST(ResponseStore, KnowsOnlyItemsThatWereSaid) {
    ResponseStore store{100, 1h};
    store.put(past("a", 1), kStart);
    EXPECT_EQ(store.find_item("given", "", kStart), nullptr);
}

// ---- on a server -------------------------------------------------------------------------------

server::Options with_store() {
    server::Options options;
    options.limits.max_store_bytes = 1U << 20U;
    return options;
}

std::string body(std::string_view fields) {
    return R"({"model":"demo-1b",)" + std::string{fields} + "}";
}

TEST(Store, GoesOnFromAResponseOfAnotherConnectionAndTransport) {
    TestServer server{{.options = with_store(), .words = {"A"}}};
    const auto first = HttpClient{server.port()}.post("/v1/responses", body(R"("input":"Q")"));
    ASSERT_EQ(first.status, 200);
    EXPECT_TRUE(first.json().at("store").as_bool());
    const std::string id{first.json().at("id").as_string()};
    WsClient socket{server.port()};
    const auto second = socket.turn(R"({"type":"response.create","model":"demo-1b","input":"Q2",)"
                                    R"("previous_response_id":")" + id + R"("})");
    EXPECT_EQ(type_of(second.back()), "response.completed") << json::serialize(second.back());
    expect_invariants(second);
    const std::string next{second.back().at("response").at("id").as_string()};
    const auto third = HttpClient{server.port()}.post(
        "/v1/responses", body(R"("input":"Q3","stream":true,"previous_response_id":")" + next + '"'));
    EXPECT_NE(third.body.find("response.completed"), std::string::npos) << third.body;
    EXPECT_EQ(text_of(server.engine->requests().at(2).prompt),
              "user:Q\nassistant:A\nuser:Q2\nassistant:A\nuser:Q3\nassistant:");
}

TEST(Store, IsNotUsedWhereTheRequestForbidsItOrThereIsNone) {
    TestServer with{{.options = with_store(), .words = {"A"}}};
    TestServer without{{.words = {"A"}}};
    for (const auto& [port, fields] :
         {std::pair{with.port(), R"("input":"Q","store":false)"},
          std::pair{without.port(), R"("input":"Q","store":true)"}}) {
        HttpClient client{port};
        const auto first = client.post("/v1/responses", body(fields));
        EXPECT_FALSE(first.json().at("store").as_bool());
        const std::string id{first.json().at("id").as_string()};
        const auto gone = client.post(
            "/v1/responses", body(R"("input":"x","previous_response_id":")" + id + '"'));
        EXPECT_EQ(gone.status, 400);
        EXPECT_EQ(gone.json().at("error").at("code").as_string(), "previous_response_not_found");
    }
}

TEST(Store, ItemsAreReferredToByTheirIds) {
    TestServer server{{.options = with_store(), .words = {"A"}}};
    HttpClient client{server.port()};
    const auto first = client.post("/v1/responses", body(R"("input":"Q")")).json();
    const std::string item{first.at("output").at(0).at("id").as_string()};
    const auto second = client.post(
        "/v1/responses", body(R"("input":[{"role":"user","content":"Q"},{"type":"item_reference","id":")" +
                              item + R"("},{"role":"user","content":"Q2"}])"));
    ASSERT_EQ(second.status, 200) << second.body;
    EXPECT_EQ(text_of(server.engine->requests().at(1).prompt),
              "user:Q\nassistant:A\nuser:Q2\nassistant:");
    const auto unknown = client.post(
        "/v1/responses", body(R"("input":[{"type":"item_reference","id":"msg_none"}])"));
    EXPECT_EQ(unknown.status, 400);
    EXPECT_EQ(unknown.json().at("error").at("param").as_string(), "input[0]");
    EXPECT_EQ(client.post("/v1/responses", body(R"("input":[{"type":"item_reference"}])")).status,
              400);
}

TEST(Store, AnswersGetAndDeleteToItsOwnerOnly) {
    server::Options options = with_store();
    options.api_keys = {server::make_key("alice", "sk-a"), server::make_key("bob", "sk-b")};
    TestServer server{{.options = std::move(options), .words = {"A"}}};
    const support::Headers alice = {{"authorization", "Bearer sk-a"}};
    const support::Headers bob = {{"authorization", "Bearer sk-b"}};
    HttpClient client{server.port()};
    const auto first = client.request("POST", "/v1/responses", body(R"("input":"Q")"), alice);
    const std::string path = "/v1/responses/" + std::string{first.json().at("id").as_string()};
    EXPECT_EQ(client.request("GET", path, "", alice).json(), first.json());
    EXPECT_EQ(client.request("GET", path, "", bob).status, 404);
    EXPECT_EQ(client.request("DELETE", path, "", bob).status, 404);
    EXPECT_EQ(client.request("POST", path, "{}", alice).status, 405);
    EXPECT_TRUE(client.request("DELETE", path, "", alice).json().at("deleted").as_bool());
    EXPECT_EQ(client.request("GET", path, "", alice).status, 404);
    EXPECT_EQ(HttpClient{server.port()}.get(path).status, 401);
}

}  // namespace
