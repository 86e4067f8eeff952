#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "daemon/assay/report.hpp"
#include "daemon/plugin/resolve.hpp"

namespace assay {

/// What a report holds for: plugins, programs, device, model, plan and depth. Any change makes another
/// key, so that nothing that was proven under other circumstances is ever believed.
struct CacheKey {
    std::string program;     ///< hash of the running executable
    std::string model_hash;
    std::string depth;
    std::string limits;      ///< sizes of steps and cache, calibration and probes
    std::string plan_text;   ///< chosen plugins with the SHA-256 of their files, tiers, options, device

    [[nodiscard]] std::string hex() const;
};
/// The chosen plugins of a plan with the hashes of their files.
[[nodiscard]] std::string plan_identity(const plugin::Plan& plan);
/// Of /proc/self/exe.
[[nodiscard]] std::string program_hash();

/// Passing reports, one file a key. A folder that somebody else may write to is not used.
class ReportCache {
public:
    /// An empty path: nothing is kept.
    explicit ReportCache(std::filesystem::path folder);
    /// The report, when it is there and passed. What cannot be read counts as absent.
    [[nodiscard]] std::optional<Report> find(const CacheKey& key) const;
    /// Keeps a passing report; others are not kept. Failure to write is no failure: the next start proves again.
    void keep(const CacheKey& key, const Report& report) const;
    /// $CACHE_DIRECTORY of systemd, else assay below $XDG_CACHE_HOME or $HOME/.cache; "" when there is none.
    [[nodiscard]] static std::filesystem::path default_folder();

private:
    std::filesystem::path folder_;
};

}  // namespace assay
