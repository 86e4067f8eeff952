#pragma once

#include "daemon/base/request.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace server {

/// A response that has ended, as far as a later request may go on from it. Immutable.
struct PastResponse {
    std::string id;
    std::string owner;           ///< label of the key that asked for it; "" without keys
    boost::json::array items;    ///< what it was given, then what it said
    std::size_t num_given = 0;   ///< items that it was given
    std::string object;          ///< the response object; "" unless it is stored
    std::size_t bytes = 0;       ///< all of it, roughly
};

/// Responses that outlive their connection (`store`), in memory: bounded in bytes and age, oldest out
/// first. Whoever asks with another key does not find them. Thread: io.
class ResponseStore {
public:
    /// @param max_bytes  0: nothing is stored
    ResponseStore(std::size_t max_bytes, std::chrono::milliseconds max_age)
        : max_bytes_{max_bytes}, max_age_{max_age} {}

    [[nodiscard]] bool is_on() const { return max_bytes_ > 0; }
    void put(std::shared_ptr<const PastResponse> response, base::Clock::time_point now);
    /// Null where there is none, or it is another's.
    [[nodiscard]] std::shared_ptr<const PastResponse> find(std::string_view id,
                                                           std::string_view owner,
                                                           base::Clock::time_point now);
    /// An item that a stored response said, by its id. Null likewise; valid until the next call.
    [[nodiscard]] const boost::json::value* find_item(std::string_view id, std::string_view owner,
                                                      base::Clock::time_point now);
    /// @return whether it was there
    bool erase(std::string_view id, std::string_view owner, base::Clock::time_point now);

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    struct Entry {
        std::shared_ptr<const PastResponse> response;  // held with lanes that may continue it
        base::Clock::time_point since;
    };
    using Entries = std::list<Entry>;
    struct Place {
        Entries::iterator entry;
        std::size_t item;
    };

    void expire(base::Clock::time_point now);
    void drop(Entries::iterator entry);

    std::size_t max_bytes_;
    std::chrono::milliseconds max_age_;
    std::size_t bytes_ = 0;
    Entries entries_;  // oldest first
    std::unordered_map<std::string_view, Entries::iterator> by_id_;  // views into the responses
    std::unordered_map<std::string_view, Place> items_;
};

}  // namespace server
