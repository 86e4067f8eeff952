#pragma once

#include <span>

#include "daemon/model/architecture.hpp"

namespace model::architectures {

/// Every architecture. A new one is a file here and a row in list.cpp.
[[nodiscard]] std::span<const Architecture* const> all();

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;
extern const Architecture kGlm4;
extern const Architecture kGlm4Moe;
extern const Architecture kGptOss;
extern const Architecture kGemma3;
extern const Architecture kDeepseek2;
extern const Architecture kDeepseek32;
extern const Architecture kGlmDsa;

}  // namespace model::architectures
