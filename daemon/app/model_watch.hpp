#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace app {

/// Notices that somebody writes into a model file while it is served: its weights are mapped, so that they
/// change under the running model. A file that is replaced (mv) is no concern: what is mapped is the old one.
class ModelWatch {
public:
    ModelWatch() = default;
    /// Remembers what the files are now.
    explicit ModelWatch(const std::vector<std::string>& files);

    /// What has changed since, in words with the file's name; "" when nothing has.
    [[nodiscard]] std::string change() const;

private:
    struct Entry {
        std::string path;
        std::uint64_t device = 0, inode = 0, size = 0;
        std::int64_t modified_ns = 0;
    };
    static bool look(Entry& entry);

    std::vector<Entry> entries_;
};

/// From now on a read of mapped bytes that are gone (a file cut short, a disk that fails) ends the process
/// with a line that names the file: exit status 65 for one of `model_files`, a core dump for any other. The
/// line goes to standard error, and to `log_fd` where that is another descriptor (-1: none).
///
/// Call once, before the files are read.
void explain_bus_errors(const std::vector<std::string>& model_files, int log_fd);

}  // namespace app
