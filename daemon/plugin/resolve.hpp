#pragma once

#include "abi/plugin.h"
#include "daemon/plugin/instance.hpp"
#include "daemon/plugin/registry.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace plugin {

/// One thing that a quant plugin must be able to do for this model.
struct QuantNeed {
    std::string label;   ///< for people: "blk.0.ffn_down.weight q6_k, m <= 512"
    std::string format;  ///< what query.format will point at
    assay_quant_query query{};
};

/// The attention of layers that are alike.
struct AttentionNeed {
    std::string label;  ///< "layers 0-5"
    assay_attn_layer layer{};
};

/// What configuration × model × device ask of the plugins. Lists of ids are as the configuration
/// wrote them, first choice first.
struct Requirements {
    std::vector<std::string> device, quant, attention_prefill, attention_decode;
    int device_ordinal = 0;
    std::map<std::string, Options, std::less<>> options;  ///< by plugin id

    std::vector<QuantNeed> quant_needs;
    std::vector<AttentionNeed> attention_needs;
    std::int32_t io_dtype = ASSAY_F32;
    std::int32_t kv_dtype = ASSAY_DTYPE_NONE;  ///< NONE: the plugin's own choice
    std::uint32_t page_tokens = 0;             ///< 0: the plugin's own choice
};

/// A plugin in the plan.
struct Choice {
    std::string id, version, build_id, sha256, path, tier;
};

/// A configured alternative that was not taken.
struct PassedOver {
    std::string role;  ///< "attention.prefill", "quant q6_k"
    std::string id, reason;
};

/// What will serve, decided once. Data: printed at start, reported, hashed into system_fingerprint.
struct Plan {
    Choice loader;              ///< filled in by whoever opened the model
    std::string chat_template;  ///< likewise: where it comes from, and the SHA-256 of its text
    Choice device;
    std::string device_name;  ///< "cpu 0: AMD EPYC …"
    std::int32_t device_arch = 0;
    std::vector<Choice> quant;                  ///< each plugin that has at least one format
    std::map<std::string, std::string> format;  ///< format id → quant plugin id
    Choice prefill, decode;
    bool mixed = false;                   ///< prefill and decode of a step may go in one call
    std::vector<std::string> kv_layouts;  ///< layout id of each AttentionNeed
    std::uint32_t page_tokens = 0;
    std::map<std::string, Options, std::less<>> options;  ///< of the chosen plugins
    std::vector<PassedOver> passed_over;

    /// One line per role, then what was passed over and why.
    [[nodiscard]] std::string to_text() const;
    /// Identifies what computes: 16 hexadecimal digits over ids, versions, builds, tiers, layouts,
    /// formats, options and the chat template; not over paths, nor over what was passed over.
    [[nodiscard]] std::string hash() const;
};

/// The plan with what it was decided on, open and ready to make instances from.
struct Resolution {
    Plan plan;
    std::shared_ptr<Device> device;
    std::map<std::string, std::shared_ptr<Quant>, std::less<>> quant;  ///< by plugin id
    std::shared_ptr<Module> prefill, decode;  ///< attention; the same object for the same plugin

    /// The instance that serves a weight format. The format is one of the needs.
    [[nodiscard]] const std::shared_ptr<Quant>& quant_for(const std::string& format) const;
};

/// Decides what serves. For each role the first configured alternative that supports everything
/// asked of it; for quant, per weight format. Prefill and decode write and read the same pages, so
/// their layouts must be equal. Nothing that the configuration does not name is ever taken.
///
/// @throws base::ConfigError (exit 78): first line the requirement and each candidate's reason;
/// then
///         the detail, and what to do.
[[nodiscard]] Resolution resolve(Registry& registry, const Requirements& requirements);

/// Opens one plugin of the device list, the first that works. Part of resolve(); also for tools.
/// @throws base::ConfigError as resolve() does
[[nodiscard]] std::shared_ptr<Device> open_device(Registry& registry,
                                                  const Requirements& requirements, Plan& plan);

/// The attention configuration that the requirements and a plugin's options make. `options`
/// receives the storage that the result borrows.
[[nodiscard]] assay_attn_config attention_config(const Requirements& requirements,
                                                 const std::string& plugin_id,
                                                 const assay_device_ref* device,
                                                 std::vector<assay_option>& options);

}  // namespace plugin
