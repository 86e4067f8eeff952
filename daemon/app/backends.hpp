#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/config/config.hpp"
#include "daemon/model/model_file.hpp"
#include "daemon/plugin/registry.hpp"
#include "daemon/plugin/resolve.hpp"

namespace app {

/// The registry that a configuration describes.
[[nodiscard]] std::unique_ptr<plugin::Registry> open_registry(const config::Config& config,
                                                              const plugin::HostServices& services);

/// Opens a model with the loader plugin that recognises it.
/// Throws base::ModelError (unreadable, recognised by none) or base::ConfigError (no loader at all).
///
/// @param check_weights  have the loader look at every weight for NaN and Inf, which reads the file
[[nodiscard]] std::unique_ptr<model::ModelFile> open_model(plugin::Registry& registry,
                                                           const config::Config& config,
                                                           bool check_weights = false);

/// Writes the backends that compute every op by its definition into `config`: what "correct" is.
void use_reference_backends(config::Config& config);

/// An attention instance for these layers, configured as the requirements say.
[[nodiscard]] std::unique_ptr<plugin::Attention> make_attention(const plugin::Requirements& requirements,
                                                                const plugin::Device& device, plugin::Module& module,
                                                                const std::vector<assay_attn_layer>& layers);
/// The pages of each layer. Throws base::ConfigError with the plugin's words.
[[nodiscard]] std::vector<assay_kv_layout> kv_layouts(const plugin::Requirements& requirements,
                                                      const plugin::Device& device, plugin::Module& module,
                                                      const std::vector<assay_attn_layer>& layers);

/// The parts of the resolver's requirements that the configuration states.
[[nodiscard]] plugin::Requirements requirements(const config::Config& config);

}  // namespace app
