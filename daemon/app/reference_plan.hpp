#pragma once

#include <cstdint>
#include <memory>

#include "daemon/app/backends.hpp"
#include "daemon/assay/run.hpp"
#include "daemon/config/config.hpp"
#include "daemon/model/kv_cache.hpp"
#include "daemon/model/runner.hpp"
#include "daemon/model/step_driver.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/lanes.hpp"
#include "daemon/plugin/registry.hpp"
#include "daemon/plugin/resolve.hpp"

namespace app {

/// A model by definition, beside the plan that serves: the reference plugins over the mapped file. Its
/// runner and cache are made when a driver is first asked for. Throws base::ConfigError where a reference
/// plugin is missing: without one nothing can be proven.
class ReferencePlan {
public:
    /// @param lanes  shared with whoever is idle meanwhile
    ReferencePlan(plugin::Registry& registry, const config::Config& config, const model::ModelFile& file,
                  const model::AuditReport& audit, const plugin::WorkerLanes& lanes, std::int32_t context_length);

    [[nodiscard]] const plugin::Plan& plan() const { return resolution_.plan; }
    [[nodiscard]] assay::Reference reference();

private:
    [[nodiscard]] model::StepDriver driver(std::int32_t max_len);

    const model::AuditReport& audit_;
    const plugin::WorkerLanes& lanes_;
    std::int32_t context_length_;
    plugin::Requirements requirements_;
    plugin::Resolution resolution_;
    std::unique_ptr<plugin::Stream> stream_;
    std::unique_ptr<model::Weights> weights_;
    std::unique_ptr<plugin::Attention> attention_;
    std::unique_ptr<model::KvCache> cache_;
    std::unique_ptr<model::Runner> runner_;
};

}  // namespace app
