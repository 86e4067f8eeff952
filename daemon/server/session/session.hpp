#pragma once

#include "daemon/base/request.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace server {

/// An open connection, as the server sees it. Thread: io.
class Session {
public:
    virtual ~Session() = default;
    /// Now and then: drops peers that take nothing, ends connections that are too old.
    virtual void sweep(base::Clock::time_point now) = 0;
    /// No further request: closes now when idle, else after what runs.
    virtual void drain() = 0;
    /// The time to drain is over: what runs is ended with an error, then the connection.
    virtual void abort() = 0;
    /// Closes the socket at once.
    virtual void drop() = 0;
    /// Whether a request is being read or answered, or a WebSocket is open.
    [[nodiscard]] virtual bool is_busy() const = 0;
};

/// All open connections, and how many each address has. Thread: io.
class Sessions {
public:
    void add(Session& session, const std::string& address) {
        all_.insert(&session);
        ++per_address_[address];
    }
    void remove(Session& session, const std::string& address) {
        all_.erase(&session);
        const auto found = per_address_.find(address);
        if (found != per_address_.end() && --found->second == 0) per_address_.erase(found);
    }
    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] std::size_t num_from(const std::string& address) const {
        const auto found = per_address_.find(address);
        return found == per_address_.end() ? 0 : found->second;
    }
    [[nodiscard]] bool is_any_busy() const {
        return std::any_of(all_.begin(), all_.end(),
                           [](const Session* session) { return session->is_busy(); });
    }
    /// Calls a member of each; sessions may close meanwhile.
    template <class Call>
    void for_each(Call call) {
        const std::unordered_set<Session*> now = all_;
        for (Session* session : now)
            if (all_.contains(session)) call(*session);
    }

private:
    std::unordered_set<Session*> all_;
    std::unordered_map<std::string, std::size_t> per_address_;
};

}  // namespace server
