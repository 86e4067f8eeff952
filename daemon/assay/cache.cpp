#include "daemon/assay/cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "daemon/assay/calibration.hpp"
#include "daemon/plugin/sha256.hpp"

namespace assay {
namespace {

/// Ours, and nobody else may write to it.
bool is_private(const std::filesystem::path& path) {
    struct stat s {};
    return ::stat(path.c_str(), &s) == 0 && s.st_uid == ::geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void put(std::string& out, const plugin::Choice& choice) {
    for (const std::string* field : {&choice.id, &choice.version, &choice.build_id, &choice.sha256, &choice.tier}) out += *field + '\n';
}

}  // namespace

std::string plan_identity(const plugin::Plan& plan) {
    std::string text = plan.hash() + '\n' + plan.device_name + '\n' + std::to_string(plan.device_arch) + '\n';
    put(text, plan.device);
    put(text, plan.prefill);
    put(text, plan.decode);
    for (const plugin::Choice& quant : plan.quant) put(text, quant);
    return text;
}

std::string program_hash() {
    std::ifstream in{"/proc/self/exe", std::ios::binary};
    ContentHash hash;
    std::vector<char> buffer(std::size_t{1} << 20U);
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0)
        hash.update(buffer.data(), static_cast<std::size_t>(in.gcount()));
    return std::to_string(hash.value());
}

std::string CacheKey::hex() const {
    std::string text = "assay.report/1\n";
    for (const std::string* field : {&program, &model_hash, &depth, &limits, &plan_text})
        text += std::to_string(field->size()) + ':' + *field + '\n';
    return plugin::sha256_hex(text);
}

ReportCache::ReportCache(std::filesystem::path folder) : folder_{std::move(folder)} {
    if (folder_.empty()) return;
    std::error_code ec;
    std::filesystem::create_directories(folder_, ec);
    if (!is_private(folder_)) folder_.clear();
}

std::optional<Report> ReportCache::find(const CacheKey& key) const {
    if (folder_.empty()) return std::nullopt;
    const std::filesystem::path path = folder_ / (key.hex() + ".json");
    if (!is_private(path)) return std::nullopt;
    std::ifstream in{path, std::ios::binary};
    if (!in) return std::nullopt;
    try {
        const std::string text{std::istreambuf_iterator<char>{in}, {}};
        Report report = Report::from_json(text);
        if (!report.passed()) return std::nullopt;
        report.from_cache = true;
        return report;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

void ReportCache::keep(const CacheKey& key, const Report& report) const {
    if (folder_.empty() || !report.passed() || report.from_cache) return;
    const std::filesystem::path path = folder_ / (key.hex() + ".json");
    const std::filesystem::path draft = path.string() + "." + std::to_string(::getpid());
    {
        std::ofstream out{draft, std::ios::binary | std::ios::trunc};
        out << report.to_json();
        if (!out) return;
    }
    std::error_code ec;
    std::filesystem::permissions(draft, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ec);
    std::filesystem::rename(draft, path, ec);  // whole or not at all
    if (ec) std::filesystem::remove(draft, ec);
}

std::filesystem::path ReportCache::default_folder() {
    const auto variable = [](const char* name) -> std::string {
        const char* value = std::getenv(name);
        return value != nullptr && value[0] == '/' ? value : "";
    };
    if (const std::string folder = variable("CACHE_DIRECTORY"); !folder.empty()) return folder;
    if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/assay";
    if (const std::string folder = variable("HOME"); !folder.empty()) return folder + "/.cache/assay";
    return {};
}

}  // namespace assay
