#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/options.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace metrics {
class Registry;
}

namespace server {

[[nodiscard]] KeyDigest digest_of(std::string_view secret);
[[nodiscard]] ApiKey make_key(std::string label, std::string_view secret);

/// What each key has in flight and has used, held against its limits.
///
/// Tokens are a bucket that fills steadily up to one minute's worth. A request is taken while there is
/// anything in it, and pays for its prompt at once and for its answer as it comes: a long answer may leave
/// a debt, which the key waits out. A connection belongs to the key that opened it; HTTP requests of one
/// connection may each come with another.
///
/// Thread: io.
class KeyLedger {
public:
    using Clock = base::Clock;

    /// @param keys  outlive the ledger
    explicit KeyLedger(const std::vector<ApiKey>& keys);

    struct Account {
        const ApiKey* key = nullptr;
        std::size_t in_flight = 0;
        double tokens = 0;  ///< in the bucket; negative: a debt
        Clock::time_point filled_at{};
        std::uint64_t requests = 0, prompt_tokens = 0, generated_tokens = 0;
        std::uint64_t refused_in_flight = 0, refused_tokens = 0;
    };

    /// What `client` submits from now on is on the key's account. `key`: one of the keys, or none.
    void bind(std::uint64_t client, const ApiKey* key);
    void unbind(std::uint64_t client) { clients_.erase(client); }

    /// The account of a client, or null.
    [[nodiscard]] Account* find(std::uint64_t client);
    /// Why the account may not begin another answer now, or Errc{}. Counts a refusal.
    [[nodiscard]] std::optional<base::Errc> refusal(Account& account, Clock::time_point now);
    /// Books an answer that has begun.
    void begin(Account& account, std::size_t prompt_tokens);

    /// Sets the families key_* of the registry, by label.
    void publish(metrics::Registry& registry) const;

    /// Labels with series of their own; the keys behind them in the file share "other".
    static constexpr std::size_t kMaxLabels = 50;

private:
    std::vector<Account> accounts_;      // [keys]; never moved
    std::vector<std::string> labels_;    // [keys], as metrics show them
    const ApiKey* first_ = nullptr;
    std::unordered_map<std::uint64_t, Account*> clients_;
};

}  // namespace server
