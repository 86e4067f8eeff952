#include "daemon/plugin/module.hpp"

#define BOOST_DLL_USE_STD_FS
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"
#include "sdk/cxx/plugin.hpp"

#include <boost/dll/shared_library.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace plugin {
namespace {

struct Mapped {
    std::filesystem::path path;
    std::string sha256;
    const assay_module* entry = nullptr;
    std::weak_ptr<Module> module;  // while someone holds it open
};

// What the dynamic linker keeps for this process, and who has it open. One per process because the
// linker's own table is: it answers a path it knows with the old code, whatever the file now holds.
struct Process {
    std::mutex mutex;  // held through open() and close(): one control call at a time
    std::vector<Mapped> mapped;
    std::vector<boost::dll::shared_library> libraries;  // never destroyed, so never unmapped
};

Process& process() {
    static Process& only = *new Process;  // images outlive static destruction
    return only;
}

std::string name_of(const ImageFacts& facts, const std::filesystem::path& path) {
    return "plugin \"" + facts.id + "\" (" + path.string() + ")";
}

template <std::size_t N>
bool same_text(const char (&field)[N], const std::string& text) {
    return std::string_view{field, strnlen(field, N)} == text;
}

// Maps the image for good: its handle goes to `libraries` before anything is made of it.
const assay_module* map_image(const std::filesystem::path& path, const ImageFacts& facts,
                              std::vector<boost::dll::shared_library>& libraries) {
    namespace dll = boost::dll;
    std::error_code error;
    dll::shared_library library;
    library.load(path, error, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
    if (error) {
        const char* const why = dlerror();
        throw base::ConfigError{name_of(facts, path) +
                                " cannot be mapped: " + (why != nullptr ? why : error.message())};
    }
    libraries.push_back(std::move(library));
    const auto* entry = &libraries.back().get<const assay_module>("assay_module_entry");
    if (entry->magic != ASSAY_MAGIC || entry->size < sizeof *entry ||
        entry->abi_major != facts.abi_major || entry->abi_minor != facts.abi_minor ||
        !same_text(entry->id, facts.id) || !same_text(entry->version, facts.version) ||
        !same_text(entry->build, facts.build) || entry->open == nullptr ||
        entry->query == nullptr || entry->close == nullptr)
        throw base::ConfigError{name_of(facts, path) +
                                " differs in memory from what its file says; restart the daemon"};
    return entry;
}

void open_entry(const assay_module& entry, const Host& host, const std::string& name) {
    assay_error err = sdk::make_error();
    assay_status status = ASSAY_OK;
    const std::string thrown =
        exception_let_out("open()", [&] { status = entry.open(host.abi(), &err); });
    if (!thrown.empty()) throw base::ConfigError{name + " " + thrown};
    err.text[sizeof err.text - 1] = '\0';
    if (status != ASSAY_OK)
        throw base::ConfigError{name + ": open() failed with status " + std::to_string(status) +
                                ": " + (err.text[0] != '\0' ? err.text : "no words given")};
}

}  // namespace

std::shared_ptr<Module> Module::open(const std::filesystem::path& path, const std::string& sha256,
                                     const ImageFacts& facts, const HostServices& services) {
    Process& p = process();
    const std::scoped_lock lock{p.mutex};
    auto known = std::find_if(p.mapped.begin(), p.mapped.end(),
                              [&](const Mapped& m) { return m.sha256 == sha256; });
    if (known == p.mapped.end()) {
        for (const Mapped& m : p.mapped)
            if (m.path == path)
                throw base::ConfigError{name_of(facts, path) + ": " + kReplacedAdvice};
        const assay_module* const entry = map_image(path, facts, p.libraries);
        p.mapped.push_back({path, sha256, entry, {}});
        known = p.mapped.end() - 1;
    }
    if (auto open = known->module.lock()) return open;
    std::shared_ptr<Module> module{new Module{known->path, sha256, facts, services}};
    open_entry(*known->entry, module->host_, name_of(facts, known->path));
    module->entry_ = known->entry;  // from here on the destructor closes it
    known->module = module;
    return module;
}

Module::Module(std::filesystem::path path, std::string sha256, ImageFacts facts,
               const HostServices& services)
    : path_{std::move(path)},
      sha256_{std::move(sha256)},
      facts_{std::move(facts)},
      host_{facts_.id, std::string{kind_name(facts_.kinds.front())}, services} {}

Module::~Module() {
    if (entry_ == nullptr) return;
    const std::scoped_lock lock{process().mutex};
    entry_->close();
}

std::string Module::build_id() const {
    return facts_.build_id.empty() ? sha256_.substr(0, 16) : facts_.build_id;
}

const void* Module::query(const char* kind) const {
    const bool offered =
        std::find(facts_.kinds.begin(), facts_.kinds.end(), kind) != facts_.kinds.end();
    return offered ? entry_->query(kind) : nullptr;
}

Source Module::source() const {
    return {facts_.id, host_.abi(), shared_from_this()};
}

std::size_t num_mapped_images() {
    Process& p = process();
    const std::scoped_lock lock{p.mutex};
    return p.mapped.size();
}

std::string mapped_sha256(const std::filesystem::path& path) {
    Process& p = process();
    const std::scoped_lock lock{p.mutex};
    for (const Mapped& m : p.mapped)
        if (m.path == path) return m.sha256;
    return {};
}

}  // namespace plugin
