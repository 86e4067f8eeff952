#include "daemon/server/keys.hpp"

#include "daemon/base/check.hpp"
#include "daemon/metrics/registry.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <openssl/sha.h>
#include <utility>

namespace server {

KeyDigest digest_of(std::string_view secret) {
    KeyDigest digest;
    ::SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest.data());
    return digest;
}

ApiKey make_key(std::string label, std::string_view secret) {
    return {.label = std::move(label), .digest = digest_of(secret)};
}

KeyLedger::KeyLedger(const std::vector<ApiKey>& keys) : accounts_(keys.size()), first_{keys.data()} {
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        accounts_[i].key = &keys[i];
        const std::string& label = keys[i].label;
        const bool is_new = std::find(seen.begin(), seen.end(), label) == seen.end();
        if (is_new && seen.size() < kMaxLabels) seen.push_back(label);
        labels_.push_back(is_new && seen.back() != label ? "other" : label);
    }
}

void KeyLedger::bind(std::uint64_t client, const ApiKey* key) {
    if (key == nullptr) return unbind(client);
    const auto index = static_cast<std::size_t>(key - first_);
    CHECK(index < accounts_.size());
    clients_[client] = &accounts_[index];
}

KeyLedger::Account* KeyLedger::find(std::uint64_t client) {
    const auto found = clients_.find(client);
    return found == clients_.end() ? nullptr : found->second;
}

std::optional<base::Errc> KeyLedger::refusal(Account& account, Clock::time_point now) {
    const ApiKey& key = *account.key;
    if (key.max_in_flight > 0 && account.in_flight >= key.max_in_flight) {
        ++account.refused_in_flight;
        return base::Errc::key_in_flight;
    }
    if (key.tokens_per_minute <= 0) return std::nullopt;
    const auto rate = static_cast<double>(key.tokens_per_minute);
    const bool is_first = account.filled_at == Clock::time_point{};
    const double minutes = std::chrono::duration<double, std::ratio<60>>(now - account.filled_at).count();
    account.tokens = is_first ? rate : std::min(rate, account.tokens + rate * minutes);
    account.filled_at = now;
    if (account.tokens > 0) return std::nullopt;
    ++account.refused_tokens;
    return base::Errc::key_tokens;
}

void KeyLedger::begin(Account& account, std::size_t prompt_tokens) {
    ++account.in_flight;
    ++account.requests;
    account.prompt_tokens += prompt_tokens;
    account.tokens -= static_cast<double>(prompt_tokens);
}

void KeyLedger::publish(metrics::Registry& registry) const {
    using metrics::Family;
    std::map<std::string, Account> by_label;
    for (std::size_t i = 0; i < accounts_.size(); ++i) {
        const Account& account = accounts_[i];
        Account& sum = by_label[labels_[i]];
        sum.in_flight += account.in_flight;
        sum.requests += account.requests;
        sum.prompt_tokens += account.prompt_tokens;
        sum.generated_tokens += account.generated_tokens;
        sum.refused_in_flight += account.refused_in_flight;
        sum.refused_tokens += account.refused_tokens;
    }
    const auto set = [&](Family family, std::vector<std::string> labels, std::uint64_t value) {
        registry.set_series(family, std::move(labels), static_cast<double>(value));
    };
    for (const auto& [label, sum] : by_label) {
        set(Family::key_requests_running, {label}, sum.in_flight);
        set(Family::key_requests_total, {label}, sum.requests);
        set(Family::key_tokens_total, {label, "prompt"}, sum.prompt_tokens);
        set(Family::key_tokens_total, {label, "generated"}, sum.generated_tokens);
        set(Family::key_rejected_total, {label, "in_flight"}, sum.refused_in_flight);
        set(Family::key_rejected_total, {label, "tokens"}, sum.refused_tokens);
    }
}

}  // namespace server
