#pragma once

#include "daemon/plugin/module.hpp"
#include "daemon/plugin/probe.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plugin {

/// One file found in a plugin folder, and what became of it.
struct Candidate {
    enum class State { usable, refused };

    std::filesystem::path path;  ///< absolute, symbolic links resolved
    State state = State::refused;
    std::string reason;  ///< when refused: what is wrong and what to do
    ImageFacts facts;    ///< as far as the file could be read
    std::string sha256;
    ProbeResult probe;  ///< of the child process; empty when it did not come to that

    [[nodiscard]] bool usable() const noexcept { return state == State::usable; }
    [[nodiscard]] bool has_kind(std::string_view kind) const;
};

/// Finds images in trusted folders, examines them without running them here, and opens those asked
/// for. Thread: control.
class Registry {
public:
    struct Settings {
        std::vector<std::filesystem::path> folders;  ///< absolute
        std::chrono::milliseconds probe_timeout{10'000};
        ProbeCommand probe_command;
        HostServices services;
    };

    /// Scans. Throws base::ConfigError naming every folder that cannot be trusted, with what to do.
    /// A file that cannot be used is not an error: it is a candidate with its reason.
    explicit Registry(Settings settings);

    /// Looks again, for a reload. What is mapped stays mapped; images that did not change are not
    /// opened in a child again.
    void scan();

    [[nodiscard]] const std::vector<Candidate>& candidates() const noexcept { return candidates_; }
    [[nodiscard]] const std::vector<std::filesystem::path>& folders() const noexcept {
        return settings_.folders;
    }

    /// The usable candidate with this id and kind ("quant/1"), or null.
    [[nodiscard]] const Candidate* find(std::string_view id, std::string_view kind) const;

    /// Why find() is null, in words: "refused: …", "not found in …".
    [[nodiscard]] std::string absent_reason(std::string_view id, std::string_view kind) const;

    /// The module, mapped and opened at the first call and shared afterwards while anyone holds it.
    /// Throws base::ConfigError with absent_reason(), or with what mapping or open() said.
    [[nodiscard]] std::shared_ptr<Module> open(std::string_view id, std::string_view kind);

    /// Ids of usable candidates of a kind, sorted.
    [[nodiscard]] std::vector<std::string> ids(std::string_view kind) const;

    /// Every candidate with its reason, a few lines each.
    [[nodiscard]] std::string describe() const;

    /// One line each: the usable candidates of a kind, and every refused one with its reason.
    [[nodiscard]] std::string summary(std::string_view kind) const;

private:
    void examine(Candidate& candidate);
    void refuse_ambiguous_ids();

    Settings settings_;
    std::vector<Candidate> candidates_;
    ProbeCache probes_;
};

/// Empty when plugins may be loaded from the folder; otherwise why not and what to do. The folder
/// is absolute, belongs to root or to this user, and neither it nor a parent lets others replace
/// files.
[[nodiscard]] std::string folder_problem(const std::filesystem::path& folder);

/// The same for one file: regular, of root or this user, not writable for everyone.
[[nodiscard]] std::string file_problem(const std::filesystem::path& file);

}  // namespace plugin
