#include "daemon/server/keys.hpp"

#include "daemon/base/engine_link.hpp"
#include "daemon/metrics/feeds.hpp"
#include "daemon/server/dispatcher.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace server {
namespace {

using std::chrono::seconds;

class Ignorer final : public RequestListener {
public:
    void on_event(base::TokenEvent&) override {}
};

class KeyLedgerTest : public testing::Test {
protected:
    KeyLedgerTest() {
        keys[0].max_in_flight = 2;
        keys[1].tokens_per_minute = 60;
    }
    base::Result<base::RequestId> submit(std::uint64_t client, std::size_t prompt_tokens = 1) {
        base::Request request;
        request.client = client;
        request.prompt.assign(prompt_tokens, 1);
        return dispatcher.submit(request, listener);
    }
    void say(base::RequestId id, base::FinishReason finish) {
        base::TokenEvent event;
        event.id = id;
        event.finish = finish;
        link.publish(std::move(event));
        static_cast<void>(dispatcher.deliver());
    }

    std::vector<ApiKey> keys{make_key("alice", "1"), make_key("bob", "2")};
    KeyLedger ledger{keys};
    base::EngineLink link{64};
    metrics::Registry registry;
    metrics::Server metrics{registry};
    Dispatcher dispatcher{link, metrics, &ledger};
    Ignorer listener;
};

TEST_F(KeyLedgerTest, AKeyHasAtMostItsShareInFlightOverAllItsConnections) {
    ledger.bind(1, &keys[0]);
    ledger.bind(2, &keys[0]);
    const auto first = submit(1);
    ASSERT_TRUE(first);
    ASSERT_TRUE(submit(2));
    EXPECT_EQ(submit(1).error(), base::Errc::key_in_flight);
    EXPECT_EQ(submit(2).error(), base::Errc::key_in_flight);
    EXPECT_TRUE(submit(3)) << "nobody's connection has no limits";
    say(*first, base::FinishReason::none);
    EXPECT_EQ(submit(1).error(), base::Errc::key_in_flight);
    say(*first, base::FinishReason::stop);
    EXPECT_TRUE(submit(1));
}

TEST_F(KeyLedgerTest, ACancelledAnswerIsInFlightUntilTheEngineHasLetGoOfIt) {
    keys[0].max_in_flight = 1;
    ledger.bind(1, &keys[0]);
    const auto id = submit(1);
    dispatcher.cancel(*id, true);
    EXPECT_EQ(submit(1).error(), base::Errc::key_in_flight);
    say(*id, base::FinishReason::cancelled);
    EXPECT_TRUE(submit(1));
}

TEST_F(KeyLedgerTest, ARequestThatTheQueueHasNoRoomForIsNotBooked) {
    base::EngineLink small{1};
    Dispatcher full{small, metrics, &ledger};
    ledger.bind(1, &keys[0]);
    base::Request request;
    request.client = 1;
    request.prompt = {1};
    int taken = 0;
    for (; taken < 8; ++taken) {
        base::Request next = request;
        const auto id = full.submit(next, listener);
        if (!id && id.error() == base::Errc::queue_full) break;
        ASSERT_TRUE(id);
        keys[0].max_in_flight = 100;
    }
    EXPECT_EQ(ledger.find(1)->in_flight, static_cast<std::size_t>(taken));
}

TEST_F(KeyLedgerTest, TokensOfAMinuteAreABucketThatFillsSteadily) {
    ledger.bind(1, &keys[1]);  // 60 tokens a minute: one a second
    KeyLedger::Account& account = *ledger.find(1);
    const auto now = base::Clock::now();
    ASSERT_FALSE(ledger.refusal(account, now));
    ledger.begin(account, 50);
    ASSERT_FALSE(ledger.refusal(account, now)) << "10 are left";
    ledger.begin(account, 30);  // a debt of 20
    EXPECT_EQ(ledger.refusal(account, now), base::Errc::key_tokens);
    EXPECT_EQ(ledger.refusal(account, now + seconds{20}), base::Errc::key_tokens);
    EXPECT_FALSE(ledger.refusal(account, now + seconds{21}));
    // What was not used does not add up beyond one minute.
    EXPECT_FALSE(ledger.refusal(account, now + seconds{10'000}));
    ledger.begin(account, 60);
    EXPECT_EQ(ledger.refusal(account, now + seconds{10'000}), base::Errc::key_tokens);
}

TEST_F(KeyLedgerTest, GeneratedTokensArePaidForAsTheyCome) {
    ledger.bind(1, &keys[1]);
    const auto id = submit(1, 1);
    ASSERT_TRUE(id);
    for (int i = 0; i < 61; ++i) say(*id, base::FinishReason::none);
    EXPECT_EQ(submit(1).error(), base::Errc::key_tokens);
    EXPECT_EQ(ledger.find(1)->generated_tokens, 61U);
}

TEST_F(KeyLedgerTest, PublishesByLabelAndBoundsTheLabels) {
    ledger.bind(1, &keys[0]);
    ASSERT_TRUE(submit(1, 7));
    ASSERT_TRUE(submit(1, 7));
    EXPECT_FALSE(submit(1, 7));
    ledger.publish(registry);
    const std::string text = registry.render();
    EXPECT_NE(text.find("assay_key_requests_running{key=\"alice\"} 2"), std::string::npos) << text;
    EXPECT_NE(text.find("assay_key_tokens_total{key=\"alice\",kind=\"prompt\"} 14"), std::string::npos);
    EXPECT_NE(text.find("assay_key_rejected_total{key=\"alice\",reason=\"in_flight\"} 1"), std::string::npos);

    std::vector<ApiKey> many;
    for (int i = 0; i < 200; ++i) many.push_back(make_key("key-" + std::to_string(i), std::to_string(i)));
    metrics::Registry other;
    KeyLedger{many}.publish(other);
    std::size_t series = 0;
    const std::string all = other.render();
    for (std::size_t at = 0; (at = all.find("\nassay_key_requests_total{", at)) != std::string::npos; ++at) ++series;
    EXPECT_EQ(series, KeyLedger::kMaxLabels + 1);
    EXPECT_NE(all.find("assay_key_requests_total{key=\"other\"}"), std::string::npos);
    EXPECT_NE(all.find("assay_metrics_errors_total 0"), std::string::npos) << "none was dropped";
}

}  // namespace
}  // namespace server
