#pragma once

// The faulty image, opened as the daemon does, and the ids in its tables.

#include "cxx/plugin.hpp"
#include "tests/support/lanes.hpp"

#include <dlfcn.h>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace faults_test {

inline const assay_module& open_image(const std::string& name) {
    const std::string path = std::string{ASSAY_BUILD_DIR} + "/faults/" + name + ".so";
    void* const image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (image == nullptr) throw std::runtime_error{dlerror()};
    const auto* module = static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
    assay_error err = sdk::make_error();
    if (module->open(nullptr, &err) != ASSAY_OK) throw std::runtime_error{err.text};
    return *module;
}

template <class Table>
const Table& table(const char* kind) {
    static const assay_module& module = open_image("faulty");
    return *static_cast<const Table*>(module.query(kind));
}

/// Options of one instance, with what the configuration borrows.
struct Request {
    std::vector<std::pair<std::string, std::string>> options;
    std::vector<assay_option> abi{};
    assay_device_ref device{};

    explicit Request(std::vector<std::pair<std::string, std::string>> o) : options{std::move(o)} {
        for (const auto& [key, value] : options) abi.push_back({key.c_str(), value.c_str()});
        device.size = sizeof device;
        device.kind = "cpu";
        device.num_units = 1;
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    template <class Config>
    Config config() const {
        Config c{};
        c.size = sizeof c;
        c.options = abi.data();
        c.num_options = static_cast<std::uint32_t>(abi.size());
        return c;
    }
};

/// The ids behind "known: " of a refusal.
inline std::vector<std::string> known_ids(const std::string& refusal) {
    std::vector<std::string> ids;
    std::istringstream rest{refusal.substr(refusal.find("known: ") + 7)};
    for (std::string id; std::getline(rest >> std::ws, id, ',');) ids.push_back(id);
    return ids;
}

/// Scratch as the host gives it: aligned to 256 bytes.
class Workspace {
public:
    explicit Workspace(std::uint64_t bytes) : data_(bytes + 256) {}
    void* data() {
        void* at = data_.data();
        std::size_t room = data_.size();
        return std::align(256, 1, at, room);
    }

private:
    std::vector<char> data_;
};

/// A NaN that no arithmetic makes, before each call in every output and around it.
inline constexpr std::uint32_t kSentinel = 0x7fc5a5a5U;

}  // namespace faults_test
