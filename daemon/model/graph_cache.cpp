#include "daemon/model/graph_cache.hpp"

#include <algorithm>

#include "cxx/plugin.hpp"

namespace model {

GraphCache::~GraphCache() {
    for (const Entry& entry : entries_)
        if (entry.graph != nullptr) device_.api().graph_destroy(device_.self(), entry.graph);
}

std::size_t GraphCache::num_recorded() const {
    return static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.graph != nullptr; }));
}

GraphCache::Entry& GraphCache::find(const GraphKey& key) {
    const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
    return it != entries_.end() ? *it : entries_.emplace_back(Entry{key, false, nullptr});
}

bool GraphCache::begin(Launcher& launcher) {
    if (launcher.failed()) return false;
    assay_error err = sdk::make_error();
    launcher.device_call("graph capture", device_.api().capture_begin(device_.self(), stream_.get(), &err), err.text);
    return !launcher.failed();
}

void GraphCache::end(Entry& entry, Launcher& launcher) {
    assay_error err = sdk::make_error();
    // Also after an op that failed: the stream must leave its capture.
    const assay_status status = device_.api().capture_end(device_.self(), stream_.get(), &entry.graph, &err);
    if (!launcher.failed()) return launcher.device_call("graph capture", status, err.text);
    if (entry.graph != nullptr) device_.api().graph_destroy(device_.self(), entry.graph);
    entry.graph = nullptr;
}

void GraphCache::launch(const Entry& entry, Launcher& launcher) {
    if (launcher.failed()) return;
    launcher.device_call("graph launch", device_.api().graph_launch(device_.self(), entry.graph, stream_.get()), nullptr);
}

}  // namespace model
