#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "abi/plugin.h"
#include "daemon/assay/definition.hpp"
#include "daemon/assay/host_tensor.hpp"
#include "daemon/assay/tally.hpp"
#include "daemon/model/launcher.hpp"
#include "daemon/plugin/instance.hpp"

namespace assay {

class Activity;

/// What one call gave.
struct Finding {
    std::string op;      ///< "attn_qkv", "attention.run"
    std::string plugin;  ///< who computed it
    std::string tensor;  ///< weight, where there is one
    std::int64_t layer = -1;
    Tally tally;
    double seconds = 0;
};

/// How much of each call is compared.
struct Sampling {
    std::int64_t max_rows = 12;    ///< rows of a product, queries of attention
    std::int64_t max_cols = 256;   ///< outputs of a row
    std::int64_t max_heads = 8;
    std::vector<std::int64_t> rows;  ///< rows that are always among them, where a call has so many
};

/// Runs every call of a step on the backend that serves, and compares its outputs with the definition
/// (sdk/reference, in f64) on the very inputs that the call had. Outputs are filled with sentinels
/// beforehand; what a call must not touch is compared bit for bit.
///
/// Since every op is judged by its own inputs, an error names the op that made it and none behind it.
/// Thread: that of the runner. A check slows a step down by a hundred times.
class OpChecker : public model::Interceptor {
public:
    OpChecker(const WeightIndex& weights, const Definition& definition, const plugin::Device& device,
              const plugin::Stream& stream, std::function<void(const Finding&)> on_finding);

    /// Told of each call before it is made; null: nobody.
    void set_activity(Activity* activity) { activity_ = activity; }
    void set_sampling(Sampling sampling) { sampling_ = std::move(sampling); }

    assay_status matmul(const Site& site, std::int32_t kind, const assay_matmul& args, const plugin::Quant& quant,
                        assay_error* err) override;
    assay_status rows(const Site& site, const model::Weight& weight, const std::int32_t* ids, const assay_tensor& out,
                      assay_error* err) override;
    assay_status append(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                        const assay_attn_args& args, assay_error* err) override;
    assay_status index(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                       const assay_attn_index_args& args, assay_error* err) override;
    assay_status attend(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                        const assay_attn_args& args, assay_error* err) override;
    const assay_ops& ops(const Site& site, void** self) override;

    /// The attention of each layer, and its cache's planes: what attention calls are judged by.
    void set_layers(std::vector<assay_attn_layer> layers, std::vector<assay_kv_layout> layouts) {
        layers_ = std::move(layers);
        layouts_ = std::move(layouts);
    }

private:
    void announce(const Site& site, const std::string& plugin) const;
    friend struct DeviceOps;
    friend struct OpCall;
    struct Products;   // matmul_check.cpp
    struct Sequences;  // attention_check.cpp
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] HostTensor read(const assay_tensor& tensor) const { return {tensor, device_, stream_}; }
    /// Reads a tensor and fills it with sentinels on the device; returns it as it was.
    [[nodiscard]] HostTensor take(const assay_tensor& tensor) const;
    /// Indices below `count`: the first, the last, the sampling's own and others spread between, ascending.
    [[nodiscard]] std::vector<std::int64_t> pick(std::int64_t count, std::int64_t max) const;
    void report(const Site& site, const std::string& plugin, const std::string& tensor, Tally tally, Clock::time_point begin) const;
    /// Every element written, no NaN made, and nothing else touched.
    static void check_written(const HostTensor& before, const HostTensor& after, Tally& tally);
    [[nodiscard]] std::vector<float> cached(const plugin::Attention& plugin, std::uint32_t layer, std::uint32_t plane,
                                            void* const planes[ASSAY_MAX_PLANES], const std::vector<std::int32_t>& slots) const;

    const WeightIndex& weights_;
    const Definition& definition_;
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::function<void(const Finding&)> on_finding_;
    Sampling sampling_;
    std::vector<assay_attn_layer> layers_;
    std::vector<assay_kv_layout> layouts_;
    Activity* activity_ = nullptr;
    assay_ops shim_{};
    Site site_{"", -1};
};

}  // namespace assay
