#pragma once

#include "daemon/plugin/resolve.hpp"

#include <string>

namespace plugin {

/// The attention part of resolve(): fills prefill, decode, layouts and what was passed over.
/// `out.device` is open. Throws base::ConfigError as resolve() does.
void resolve_attention(Registry& registry, const Requirements& requirements, Resolution& out);

/// Registry::open(), whose error is then the bare reason: the caller names the plugin.
[[nodiscard]] std::shared_ptr<Module> open_or_explain(Registry& registry, const std::string& id,
                                                      const char* kind);

/// The row of a module in the plan.
[[nodiscard]] Choice choice_of(const Module& module, const std::string& tier);

}  // namespace plugin
