#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace plugin {

/// How to start the child that opens an image: its arguments, to which the path is appended.
struct ProbeCommand {
    std::vector<std::string> argv{"/proc/self/exe", "--probe-plugin"};
};

/// What came of opening an image in a child process.
struct ProbeResult {
    /// Empty when the image passed; otherwise why not, in words: "crashed in open() (SIGSEGV,
    /// segmentation fault)", "hung in open(): no answer within 10 s".
    std::string problem;
    /// What the image reported about itself, in order: {"devices", "cuda: 8"}, {"formats", "…"}.
    std::vector<std::pair<std::string, std::string>> facts;
    std::chrono::milliseconds duration{0};
};

/// Opens the image in a child process with a deadline: maps it with every symbol bound, runs
/// open(), asks for each kind, checks the tables, closes, and opens and closes once more. What the
/// image does there, it does to the child alone. The child inherits no descriptor and is killed
/// with all its children when the time is over.
///
/// Does not throw for anything that the image does. Thread: control. Blocks up to `timeout`.
[[nodiscard]] ProbeResult probe(const ProbeCommand& command, const std::filesystem::path& image,
                                std::chrono::milliseconds timeout);

/// The child's side: main() calls it for the hidden arguments `--probe-plugin PATH` before it does
/// anything else, and returns its value.
int probe_main(const char* path) noexcept;

/// Remembers results by the content of the image, so that a rescan opens only what is new.
class ProbeCache {
public:
    [[nodiscard]] const ProbeResult* find(const std::string& sha256) const;
    const ProbeResult& keep(const std::string& sha256, ProbeResult result);

private:
    std::map<std::string, ProbeResult, std::less<>> results_;
};

}  // namespace plugin
