#include "daemon/plugin/registry.hpp"

#include "daemon/base/error.hpp"
#include "daemon/plugin/sha256.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace plugin {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxImageBytes = std::uintmax_t{4} << 30;

struct FileBytes {
    std::vector<std::byte> bytes;
    std::string problem;
};

FileBytes read_file(const fs::path& path) {
    FileBytes file;
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) {
        file.problem = "cannot be read: " + error.message();
    } else if (size > kMaxImageBytes) {
        file.problem = "has " + std::to_string(size) + " bytes, want at most " +
                       std::to_string(kMaxImageBytes);
    } else {
        file.bytes.resize(size);
        std::ifstream in{path, std::ios::binary};
        in.read(reinterpret_cast<char*>(file.bytes.data()), static_cast<std::streamsize>(size));
        if (static_cast<std::uintmax_t>(in.gcount()) != size)
            file.problem = "cannot be read: got " + std::to_string(in.gcount()) + " of " +
                           std::to_string(size) + " bytes";
    }
    return file;
}

Candidate refused(fs::path path, std::string reason) {
    Candidate candidate;
    candidate.path = std::move(path);
    candidate.reason = std::move(reason);
    return candidate;
}

// Shared objects of one folder; sorted, so that reports and ties do not depend on the disk.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator it{folder, error}, end; !error && it != end; it.increment(error))
        found.push_back(it->path());
    std::sort(found.begin(), found.end());
    return found;
}

bool is_image_name(const fs::path& path) {
    return path.extension() == ".so";
}

// A file may be a link, whose target then lies in a folder that must be trusted as well.
Candidate locate(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) return refused(path, "cannot be examined: " + error.message());
    if (real.parent_path() != path.parent_path())
        if (const std::string problem = folder_problem(real.parent_path()); !problem.empty())
            return refused(path, "links to " + real.string() + ": " + problem);
    Candidate candidate;
    candidate.path = real;
    candidate.reason = file_problem(real);
    return candidate;
}

std::string short_list(const std::vector<std::string>& items, std::string_view separator) {
    std::string out;
    for (const std::string& item : items) out += (out.empty() ? "" : std::string{separator}) + item;
    return out;
}

}  // namespace

bool Candidate::has_kind(std::string_view kind) const {
    return std::find(facts.kinds.begin(), facts.kinds.end(), kind) != facts.kinds.end();
}

Registry::Registry(Settings settings) : settings_{std::move(settings)} {
    scan();
}

void Registry::scan() {
    std::string problems;
    for (const fs::path& folder : settings_.folders)
        if (const std::string problem = folder_problem(folder); !problem.empty())
            problems += (problems.empty() ? "" : "\n") + problem;
    if (settings_.folders.empty()) problems = "no plugin folder is configured; set plugins.folders";
    if (!problems.empty()) throw base::ConfigError{problems};

    std::vector<Candidate> found;
    std::set<fs::path> seen;
    const auto add = [&](const fs::path& path) {
        Candidate candidate = locate(path);
        if (!seen.insert(candidate.path).second) return;
        if (candidate.reason.empty()) examine(candidate);
        found.push_back(std::move(candidate));
    };
    for (const fs::path& folder : settings_.folders) {
        for (const fs::path& path : entries(fs::canonical(folder))) {
            std::error_code error;
            if (!fs::is_directory(path, error)) {
                if (is_image_name(path)) add(path);
                continue;
            }
            const std::vector<fs::path> inside = entries(path);
            if (std::none_of(inside.begin(), inside.end(), is_image_name)) continue;
            if (const std::string problem = folder_problem(path); !problem.empty()) {
                found.push_back(refused(path, problem));
                continue;
            }
            for (const fs::path& file : inside)
                if (is_image_name(file)) add(file);
        }
    }
    candidates_ = std::move(found);
    refuse_ambiguous_ids();
}

void Registry::examine(Candidate& candidate) {
    const FileBytes file = read_file(candidate.path);
    candidate.reason = file.problem;
    if (!candidate.reason.empty()) return;
    candidate.sha256 = sha256_hex(file.bytes);
    candidate.facts = read_image(file.bytes);
    candidate.reason = candidate.facts.problem;
    if (!candidate.reason.empty()) return;
    const std::string mapped = mapped_sha256(candidate.path);
    if (!mapped.empty() && mapped != candidate.sha256) {
        candidate.reason = kReplacedAdvice;
        return;
    }
    const ProbeResult* result = probes_.find(candidate.sha256);
    if (result == nullptr)
        result = &probes_.keep(candidate.sha256, probe(settings_.probe_command, candidate.path,
                                                       settings_.probe_timeout));
    candidate.probe = *result;
    candidate.reason = result->problem;
    if (candidate.reason.empty()) candidate.state = Candidate::State::usable;
}

// Two images that answer to one name: neither is taken, since which one came first is chance.
void Registry::refuse_ambiguous_ids() {
    std::vector<std::string> reasons(candidates_.size());
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
        const Candidate& a = candidates_[i];
        for (std::size_t j = 0; j < candidates_.size(); ++j) {
            const Candidate& b = candidates_[j];
            if (i == j || !a.usable() || !b.usable() || a.facts.id != b.facts.id) continue;
            const bool same_kind =
                std::any_of(a.facts.kinds.begin(), a.facts.kinds.end(),
                            [&](const std::string& kind) { return b.has_kind(kind); });
            if (!same_kind) continue;
            if (a.sha256 != b.sha256) {
                reasons[i] = "id \"" + a.facts.id + "\" is also that of " + b.path.string() +
                             "; remove one of the two";
            } else if (j < i && reasons[i].empty()) {
                reasons[i] = "is a copy of " + b.path.string() + ", which is used";
            }
        }
    }
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (reasons[i].empty()) continue;
        candidates_[i].state = Candidate::State::refused;
        candidates_[i].reason = reasons[i];
    }
}

const Candidate* Registry::find(std::string_view id, std::string_view kind) const {
    for (const Candidate& candidate : candidates_)
        if (candidate.usable() && candidate.facts.id == id && candidate.has_kind(kind))
            return &candidate;
    return nullptr;
}

std::string Registry::absent_reason(std::string_view id, std::string_view kind) const {
    const Candidate* other_kind = nullptr;
    std::string reasons;
    for (const Candidate& candidate : candidates_) {
        const bool by_id = candidate.facts.id == id;
        // An image that could not be read has no id; its file name is what the operator knows.
        const bool by_name = candidate.facts.id.empty() && candidate.path.stem() == id;
        if (!by_id && !by_name) continue;
        if (!candidate.facts.kinds.empty() && !candidate.has_kind(kind))
            other_kind = &candidate;
        else if (!candidate.usable())
            reasons += (reasons.empty() ? "refused: " : "; ") + candidate.path.string() + ": " +
                       candidate.reason;
    }
    if (!reasons.empty()) return reasons;
    if (other_kind != nullptr)
        return "is no " + std::string{kind} + " plugin; it offers " +
               short_list(other_kind->facts.kinds, " ");
    std::vector<std::string> folders;
    for (const fs::path& folder : settings_.folders) folders.push_back(folder.string());
    return "not found in " + short_list(folders, ", ");
}

std::shared_ptr<Module> Registry::open(std::string_view id, std::string_view kind) {
    const Candidate* const candidate = find(id, kind);
    if (candidate == nullptr)
        throw base::ConfigError{std::string{kind_name(kind)} + " plugin \"" + std::string{id} +
                                "\": " + absent_reason(id, kind)};
    // What was examined is what gets mapped.
    const FileBytes file = read_file(candidate->path);
    const std::string mapped = mapped_sha256(candidate->path);
    if (!file.problem.empty() || sha256_hex(file.bytes) != candidate->sha256)
        throw base::ConfigError{
            "plugin \"" + candidate->facts.id + "\" (" + candidate->path.string() + "): " +
            (!file.problem.empty() ? file.problem
             : !mapped.empty()     ? kReplacedAdvice
                                   : "the file changed after it was examined; scan again")};
    return Module::open(candidate->path, candidate->sha256, candidate->facts, settings_.services);
}

std::vector<std::string> Registry::ids(std::string_view kind) const {
    std::set<std::string> ids;
    for (const Candidate& candidate : candidates_)
        if (candidate.usable() && candidate.has_kind(kind)) ids.insert(candidate.facts.id);
    return {ids.begin(), ids.end()};
}

std::string Registry::summary(std::string_view kind) const {
    std::string out;
    for (const Candidate& candidate : candidates_) {
        const ImageFacts& facts = candidate.facts;
        if (!candidate.usable())
            out += "refused " + candidate.path.string() + ": " + candidate.reason + '\n';
        else if (candidate.has_kind(kind))
            out +=
                "usable  " + facts.id + ' ' + facts.version + ' ' + candidate.path.string() + '\n';
    }
    if (out.empty()) out = "no plugin of kind " + std::string{kind} + ", and none refused\n";
    return out;
}

std::string Registry::describe() const {
    std::ostringstream out;
    for (const fs::path& folder : settings_.folders) out << "folder " << folder.string() << '\n';
    for (const Candidate& candidate : candidates_) {
        const ImageFacts& facts = candidate.facts;
        if (!candidate.usable()) {
            out << "refused " << candidate.path.string();
            if (!facts.id.empty()) out << " (\"" << facts.id << "\" " << facts.version << ')';
            out << ": " << candidate.reason << '\n';
            continue;
        }
        out << "usable  " << facts.id << ' ' << facts.version << " ("
            << short_list(facts.kinds, " ") << ") " << candidate.path.string() << '\n'
            << "        vendor " << facts.vendor << "; built with " << facts.build << "; build id "
            << (facts.build_id.empty() ? "none" : facts.build_id) << '\n';
        for (const auto& [key, value] : candidate.probe.facts)
            out << "        " << key << ": " << value << '\n';
    }
    if (candidates_.empty()) out << "no file named *.so\n";
    return out.str();
}

}  // namespace plugin
