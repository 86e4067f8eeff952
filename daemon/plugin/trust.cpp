#include "daemon/plugin/registry.hpp"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace plugin {
namespace {

bool is_trusted_owner(uid_t owner) noexcept {
    return owner == 0 || owner == geteuid();
}

std::string owner_text(uid_t owner) {
    return "belongs to user " + std::to_string(owner) + ", want root or user " +
           std::to_string(geteuid()) + " who runs the daemon";
}

}  // namespace

std::string folder_problem(const std::filesystem::path& folder) {
    const std::string name = folder.string();
    if (folder.empty() || folder.lexically_normal() == "." || folder.lexically_normal() == "./")
        return "plugin folder \"" + name + "\" is the current directory; write an absolute path";
    if (!folder.is_absolute())
        return "plugin folder \"" + name +
               "\" is relative to the current directory; write an absolute path";
    std::error_code error;
    const auto real = std::filesystem::canonical(folder, error);
    if (error)
        return "plugin folder " + name + ": " + error.message() +
               "; create it, or correct plugins.folders";
    // The folder, then its parents: who may rename a parent may put another folder in its place.
    for (std::filesystem::path at = real;; at = at.parent_path()) {
        struct stat info {};
        if (stat(at.c_str(), &info) != 0)
            return "plugin folder " + name + ": " + at.string() + ": " + std::strerror(errno);
        if (!S_ISDIR(info.st_mode)) return "plugin folder " + name + " is not a folder";
        const std::string what =
            "plugin folder " + name + (at == real ? " " : ": its parent " + at.string() + " ");
        if (!is_trusted_owner(info.st_uid))
            return what + owner_text(info.st_uid) + "; chown it, or install elsewhere";
        const bool shared_parent = at != real && (info.st_mode & S_ISVTX) != 0;
        if ((info.st_mode & S_IWOTH) != 0 && !shared_parent)
            return what + "is writable for everyone; run: chmod o-w " + at.string();
        if (at == at.root_path()) return {};
    }
}

std::string file_problem(const std::filesystem::path& file) {
    struct stat info {};
    if (stat(file.c_str(), &info) != 0)
        return "cannot be examined: " + std::string{std::strerror(errno)};
    if (!S_ISREG(info.st_mode)) return "is not a regular file";
    if (!is_trusted_owner(info.st_uid)) return owner_text(info.st_uid) + "; chown it";
    if ((info.st_mode & S_IWOTH) != 0)
        return "is writable for everyone; run: chmod o-w " + file.string();
    return {};
}

}  // namespace plugin
