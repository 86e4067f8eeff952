#include "daemon/app/reference_plan.hpp"

#include <algorithm>

#include "daemon/base/error.hpp"
#include "daemon/model/needs.hpp"

namespace app {
namespace {

plugin::Requirements reference_requirements(config::Config config, const model::ModelFile& file, const model::AuditReport& audit) {
    use_reference_backends(config);
    plugin::Requirements r = requirements(config);
    r.quant_needs = model::quant_needs(file, audit, 1);
    r.attention_needs = model::attention_needs(audit.hparams);
    return r;
}

plugin::Resolution resolve_reference(plugin::Registry& registry, const plugin::Requirements& requirements) {
    try {
        return plugin::resolve(registry, requirements);
    } catch (const base::ConfigError& e) {
        throw base::ConfigError{std::string{"assay: the reference plugins (device cpu, quant ggml, attention reference) are what backends are "
                                            "proven against, and one cannot be used: "} +
                                e.what()};
    }
}

}  // namespace

ReferencePlan::ReferencePlan(plugin::Registry& registry, const config::Config& config, const model::ModelFile& file,
                             const model::AuditReport& audit, const plugin::WorkerLanes& lanes, std::int32_t context_length)
    : audit_{audit},
      lanes_{lanes},
      context_length_{context_length},
      requirements_{reference_requirements(config, file, audit)},
      resolution_{resolve_reference(registry, requirements_)},
      stream_{std::make_unique<plugin::Stream>(*resolution_.device, lanes.abi())},
      weights_{std::make_unique<model::Weights>(
          file, audit, *resolution_.device, *stream_,
          [this](const std::string& format) -> const plugin::Quant& { return *resolution_.quant_for(format); })} {}

assay::Reference ReferencePlan::reference() {
    return {*resolution_.device, *stream_, *weights_, lanes_.abi(), [this](std::int32_t max_len) { return driver(max_len); }};
}

model::StepDriver ReferencePlan::driver(std::int32_t max_len) {
    if (!runner_ || runner_->limits().max_tokens < max_len) {
        runner_.reset();
        const auto layers = model::attention_layers(audit_.hparams);
        const plugin::Device& device = *resolution_.device;
        attention_ = make_attention(requirements_, device, *resolution_.prefill, layers);
        auto layouts = kv_layouts(requirements_, device, *resolution_.prefill, layers);
        const auto page = static_cast<std::int32_t>(layouts.front().page_tokens);
        cache_ = std::make_unique<model::KvCache>(device, std::move(layouts), (max_len + page - 1) / page);
        model::RunnerLimits limits;
        limits.max_tokens = limits.max_logit_rows = max_len;
        limits.max_kv_len = std::max(context_length_, max_len);  // the same choice of RoPE factors
        runner_ = std::make_unique<model::Runner>(audit_.hparams, *weights_, device,
                                                  model::AttentionBackends{attention_.get(), attention_.get(), true}, *cache_, *stream_, limits);
    }
    return {*runner_, *cache_, *resolution_.device, *stream_, 1, max_len};
}

}  // namespace app
