#include "daemon/server/session/response_store.hpp"

#include <boost/json/object.hpp>

#include <utility>

namespace server {
namespace json = boost::json;
namespace {

std::string_view id_of(const json::value& item) {
    const json::value* id = item.is_object() ? item.get_object().if_contains("id") : nullptr;
    if (id == nullptr || !id->is_string()) return {};
    return {id->get_string().data(), id->get_string().size()};
}

}  // namespace

void ResponseStore::put(std::shared_ptr<const PastResponse> response,
                        base::Clock::time_point now) {
    expire(now);
    if (response->bytes > max_bytes_ || by_id_.contains(response->id)) return;
    while (bytes_ + response->bytes > max_bytes_) drop(entries_.begin());
    bytes_ += response->bytes;
    const auto entry = entries_.insert(entries_.end(), {std::move(response), now});
    const PastResponse& stored = *entry->response;
    by_id_.emplace(stored.id, entry);
    for (std::size_t i = stored.num_given; i < stored.items.size(); ++i)
        if (const std::string_view id = id_of(stored.items[i]); !id.empty())
            items_.emplace(id, Place{entry, i});
}

std::shared_ptr<const PastResponse> ResponseStore::find(std::string_view id, std::string_view owner,
                                                        base::Clock::time_point now) {
    expire(now);
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->response->owner != owner) return nullptr;
    return found->second->response;
}

const json::value* ResponseStore::find_item(std::string_view id, std::string_view owner,
                                            base::Clock::time_point now) {
    expire(now);
    const auto found = items_.find(id);
    if (found == items_.end() || found->second.entry->response->owner != owner) return nullptr;
    return &found->second.entry->response->items[found->second.item];
}

bool ResponseStore::erase(std::string_view id, std::string_view owner,
                          base::Clock::time_point now) {
    if (find(id, owner, now) == nullptr) return false;
    drop(by_id_.find(id)->second);
    return true;
}

void ResponseStore::expire(base::Clock::time_point now) {
    while (!entries_.empty() && now - entries_.front().since > max_age_) drop(entries_.begin());
}

void ResponseStore::drop(Entries::iterator entry) {
    const PastResponse& response = *entry->response;
    for (std::size_t i = response.num_given; i < response.items.size(); ++i) {
        const auto found = items_.find(id_of(response.items[i]));
        if (found != items_.end() && found->second.entry == entry) items_.erase(found);
    }
    by_id_.erase(response.id);
    bytes_ -= response.bytes;
    entries_.erase(entry);
}

}  // namespace server
