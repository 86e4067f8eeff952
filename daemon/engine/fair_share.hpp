#pragma once

#include <cstdint>
#include <unordered_map>

namespace engine {

/// What one client has been given, in tokens of work.
struct ClientShare {
    std::uint64_t service = 0;    ///< weighted tokens; only differences between clients mean anything
    std::uint32_t num_live = 0;   ///< its sequences, waiting ones included
};

/// Counts the work done for each client, so that the one that was given least comes next, however
/// many requests another has queued (the virtual token counter of Sheng et al., "Fairness in Serving
/// Large Language Models", 2023).
///
/// Only clients with live sequences are known. One that comes (back) starts level with the one that
/// has been given least: nobody saves up for later by being idle.
///
/// Thread: engine.
class FairShare {
public:
    /// A further sequence of `client`. The reference is good until the last leave().
    ClientShare& join(std::uint64_t client);
    void leave(std::uint64_t client);

    static void charge_prompt(ClientShare& share, std::int32_t num_tokens) {
        share.service += static_cast<std::uint64_t>(num_tokens);
    }
    /// A generated token costs a pass of its own over the weights, shared with few others.
    static void charge_decode(ClientShare& share) { share.service += kDecodeWeight; }

    [[nodiscard]] std::size_t num_clients() const { return clients_.size(); }

private:
    static constexpr std::uint64_t kDecodeWeight = 2;

    std::unordered_map<std::uint64_t, ClientShare> clients_;
    std::uint64_t floor_ = 0;  // what the last client to leave, or the least of those here, was given
};

}  // namespace engine
