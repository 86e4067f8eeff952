#pragma once

#include "daemon/base/error.hpp"
#include "daemon/plugin/registry.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace support {

namespace fs = std::filesystem;

inline fs::path fixture(const std::string& name) {
    return fs::path{ASSAY_BUILD_DIR} / "tests/plugin_fixtures" / (name + ".so");
}

inline plugin::ProbeCommand probe_command() {
    return {{std::string{ASSAY_BUILD_DIR} + "/tests/plugin_probe", "--probe-plugin"}};
}

/// A folder of its own for one test, gone with it.
class TempFolder {
public:
    TempFolder() {
        std::string name = fs::temp_directory_path() / "assay-plugin-XXXXXX";
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        path_ = fs::canonical(name);
    }
    ~TempFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    [[nodiscard]] const fs::path& path() const { return path_; }

    /// Copies fixtures in, under their own names.
    TempFolder& with(std::initializer_list<const char*> names) {
        for (const char* name : names)
            fs::copy_file(fixture(name), path_ / (std::string{name} + ".so"));
        return *this;
    }
    fs::path write(const std::string& name, const std::string& content) const {
        std::ofstream{path_ / name, std::ios::binary} << content;
        return path_ / name;
    }

private:
    fs::path path_;
};

inline plugin::Registry::Settings settings(const fs::path& folder) {
    plugin::Registry::Settings s;
    s.folders = {folder};
    s.probe_timeout = std::chrono::milliseconds{20'000};
    s.probe_command = probe_command();
    return s;
}

inline plugin::Registry registry(const TempFolder& folder) {
    return plugin::Registry{settings(folder.path())};
}

/// The reason of the candidate whose file has this stem; a complaint when there is none.
inline std::string reason(const plugin::Registry& registry, const std::string& stem) {
    for (const plugin::Candidate& candidate : registry.candidates())
        if (candidate.path.stem() == stem) return candidate.reason;
    return "no candidate " + stem;
}

/// What the ConfigError says that `action` throws; a complaint when it throws none.
template <class Action>
std::string config_error(Action&& action) {
    try {
        action();
    } catch (const base::ConfigError& error) {
        return error.what();
    }
    return "no ConfigError";
}

inline std::string read(const fs::path& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace support
