#pragma once

#include "daemon/model/architecture.hpp"

namespace model::architectures {

/// Reads the sizes of multi-head latent attention in the current file form (architectures.md 2.7:
/// key_length_mla and value_length_mla present) and sets scale and RoPE, YaRN correction included.
void read_mla(const HparamReader& reader, Hparams& hparams);

/// Reads the sizes of the sparse-attention indexer and the role of each layer (section 4.5).
void read_indexer(const HparamReader& reader, Hparams& hparams, std::int32_t rope_style);

}  // namespace model::architectures
