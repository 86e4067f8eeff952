#pragma once

#include <cstdint>
#include <vector>

#include "abi/plugin.h"
#include "daemon/model/launcher.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// What a captured step is fixed to: everything that a call of it passes by value. The rest lies in
/// device memory at addresses that never change.
struct GraphKey {
    std::int32_t num_seqs = 0;    ///< of one token each
    std::int32_t max_blocks = 0;  ///< row length of the block table, and so the bound of every length

    friend bool operator==(const GraphKey&, const GraphKey&) = default;
};

/// Steps recorded as graphs of the device, so that hundreds of launches become one. A key runs op by op
/// the first time (what a plugin prepares once must not happen inside of a capture), is recorded the
/// second, and launched from then on. Graphs hold code and addresses of one generation of plugins: the
/// cache belongs to a Runner and dies with it.
///
/// Thread: engine. Recording allocates, once a key.
class GraphCache {
public:
    GraphCache(const plugin::Device& device, const plugin::Stream& stream) : device_{device}, stream_{stream} {}
    ~GraphCache();
    GraphCache(const GraphCache&) = delete;
    GraphCache& operator=(const GraphCache&) = delete;

    /// Whether the device can record at all.
    [[nodiscard]] static bool is_offered(const plugin::Device& device) {
        return device.api().capture_begin != nullptr && device.api().capture_end != nullptr &&
               device.api().graph_launch != nullptr && device.api().graph_destroy != nullptr;
    }

    /// Does what `issue()` does, through `launcher`, which remembers what fails.
    template <class Issue>
    void run(const GraphKey& key, Launcher& launcher, Issue&& issue) {
        Entry& entry = find(key);
        if (!entry.has_run) {
            issue();
            entry.has_run = !launcher.failed();
            return;
        }
        if (entry.graph == nullptr) {
            if (!begin(launcher)) return;
            issue();
            end(entry, launcher);
        }
        launch(entry, launcher);
    }

    [[nodiscard]] std::size_t num_recorded() const;

private:
    struct Entry {
        GraphKey key;
        bool has_run = false;
        void* graph = nullptr;
    };
    Entry& find(const GraphKey& key);
    [[nodiscard]] bool begin(Launcher& launcher);
    void end(Entry& entry, Launcher& launcher);
    void launch(const Entry& entry, Launcher& launcher);

    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::vector<Entry> entries_;
};

}  // namespace model
