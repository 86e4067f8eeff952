#pragma once

#include "daemon/model/architecture.hpp"
#include "formats.hpp"
#include "preset.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace synth {

/// What the numbers of a tensor are.
enum class Content {
    blocks,        ///< weights with mean 0 and a root mean square
    around,        ///< f32 values within `spread` of `centre`
    rope_factors,  ///< f32 divisors of Llama 3.1's RoPE scaling
};

struct PlannedTensor {
    std::string name;
    std::vector<std::uint64_t> ne;  ///< contiguous dimension first
    const gguf::TensorType* type = nullptr;
    Content content = Content::blocks;
    double rms = 0, centre = 0, spread = 0;
    std::uint64_t bytes = 0;
};

/// A model that is about to be written.
struct ModelPlan {
    std::string name, arch, pre, formats;
    Keys keys;
    model::Hparams hparams;
    std::uint32_t file_type = 0;
    std::vector<PlannedTensor> tensors;

    [[nodiscard]] std::uint64_t data_bytes() const;
};

/// Reads the keys with the architecture's own reader and lists the tensors of its table: those that
/// the model needs, the optional ones whose names match `optional`, and for each NextN block what
/// the last trunk layer has. So an architecture that the daemon knows needs nothing here.
///
/// @throws base::ModelError    the reader refuses the keys, or the architecture is unknown
/// @throws std::invalid_argument  a format that does not exist
[[nodiscard]] ModelPlan make_plan(std::string name, std::string arch, Keys keys, std::string pre,
                                  const std::vector<std::string>& optional,
                                  const std::string& formats);

}  // namespace synth
