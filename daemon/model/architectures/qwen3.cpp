// qwen3, dense (architectures.md section 9): per-head RMSNorm of q and k before half-split RoPE.

#include "daemon/base/error.hpp"
#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    const std::int64_t n_rot = reader.int_or("rope.dimension_count", h.head_dim);
    if (n_rot > h.head_dim)
        throw base::ModelError{"metadata key \"qwen3.rope.dimension_count\": expected at most the head size " +
                               std::to_string(h.head_dim) + ", found " + std::to_string(n_rot)};
    h.ropes.push_back(reader.rope(n_rot, ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kQwen3{"qwen3", {kEnds, kGqa, kQkNorm, kFfnNorm, kDenseFfn}, read};

}  // namespace model::architectures
