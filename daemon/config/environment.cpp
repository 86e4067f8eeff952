#include "daemon/config/environment.hpp"

#include <string_view>
#include <system_error>

#include <unistd.h>

namespace config {

Environment Environment::of_process() {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text{*entry};
        const auto equals = text.find('=');
        if (equals == std::string_view::npos) continue;
        environment.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    std::error_code ignored;  // an empty folder makes $ORIGIN relative, which is refused
    environment.executable_folder =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    environment.working_folder = std::filesystem::current_path(ignored);
    return environment;
}

}  // namespace config
