#include "daemon/engine/fair_share.hpp"

#include <algorithm>

#include "daemon/base/check.hpp"

namespace engine {

ClientShare& FairShare::join(std::uint64_t client) {
    const auto [at, is_new] = clients_.try_emplace(client);
    if (is_new) {
        if (clients_.size() > 1) {
            floor_ = UINT64_MAX;
            for (const auto& [id, share] : clients_)
                if (id != client) floor_ = std::min(floor_, share.service);
        }
        at->second.service = floor_;
    }
    ++at->second.num_live;
    return at->second;
}

void FairShare::leave(std::uint64_t client) {
    const auto at = clients_.find(client);
    CHECK(at != clients_.end());
    if (--at->second.num_live > 0) return;
    floor_ = at->second.service;
    clients_.erase(at);
}

}  // namespace engine
