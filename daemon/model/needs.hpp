#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/audit.hpp"
#include "daemon/plugin/resolve.hpp"

namespace model {

/// The operation that a parameter of this use is given to.
[[nodiscard]] assay_quant_op op_of(Use use);

/// What the tensors of an audited model ask of quant plugins: one row per (op, format, shape,
/// precision, bias, accumulation) that will be run, each labelled with the first tensor that asks for
/// it. query.format is null: who asks sets it to the row's format. Products that share an input may
/// run in one call where a plugin supports that; the runner asks for it and can do without.
///
/// @param audit       passed
/// @param max_tokens  rows of the largest step
[[nodiscard]] std::vector<plugin::QuantNeed> quant_needs(const ModelFile& file,
                                                         const AuditReport& audit,
                                                         std::int64_t max_tokens);

/// The attention of every layer in the ABI's words, [num_layers].
[[nodiscard]] std::vector<assay_attn_layer> attention_layers(const Hparams& hparams);

/// The same for the resolver: layers that are alike share a row ("layers 0, 3-5").
[[nodiscard]] std::vector<plugin::AttentionNeed> attention_needs(const Hparams& hparams);

}  // namespace model
