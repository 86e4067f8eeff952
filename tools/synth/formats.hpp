#pragma once

#include "daemon/model/architecture.hpp"
#include "plugins/loader/gguf/types.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace synth {

/// Which format each tensor gets: the name of one format for all matrices, or of a mix ("q4_k_m").
class FormatMix {
public:
    /// @throws std::invalid_argument listing the names
    FormatMix(std::string_view name, const model::Hparams& hparams);

    /// The format of a tensor whose contiguous dimension has `row` elements. Vectors, biases,
    /// routers and index weights stay f32; a row that the format's blocks do not divide gets the
    /// next format that fits (architectures.md, appendix B).
    [[nodiscard]] const gguf::TensorType& of(const model::TensorSpec& spec, std::int64_t layer,
                                             std::uint64_t row) const;
    /// general.file_type.
    [[nodiscard]] std::uint32_t file_type() const;

private:
    [[nodiscard]] std::string_view wanted(const model::TensorSpec& spec, std::int64_t layer) const;

    const struct Mix* mix_ = nullptr;
    std::string format_;  ///< of every matrix; empty: the mix decides
    std::int64_t num_layers_, num_experts_;
};

/// Names that FormatMix takes besides those of formats.
[[nodiscard]] std::vector<std::string_view> mix_names();

}  // namespace synth
