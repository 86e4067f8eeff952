#pragma once

#include "daemon/model/architecture.hpp"

namespace model::architectures {

/// Reads the sizes of multi-head latent attention from files of all three generations
/// (architectures.md 2.7) and sets scale and RoPE, YaRN correction included.
void read_mla(const HparamReader& reader, Hparams& hparams);

/// Reads the sizes of the sparse-attention indexer, and the role of each layer where the file says
/// it; otherwise every layer chooses.
void read_indexer(const HparamReader& reader, Hparams& hparams, std::int32_t rope_style);

/// Throws unless layer 0 chooses: there is no choice before it to share.
void require_first_index(const HparamReader& reader, const Hparams& hparams);

}  // namespace model::architectures
