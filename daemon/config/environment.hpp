#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace config {

/// What the settings depend on besides the file. A test fills it by hand.
struct Environment {
    std::map<std::string, std::string> variables;

    /// What `$ORIGIN` stands for: the folder of the running executable, links followed.
    std::filesystem::path executable_folder;

    /// What relative paths in variables are relative to.
    std::filesystem::path working_folder;

    [[nodiscard]] static Environment of_process();
};

}  // namespace config
