// qwen3, dense (architectures.md section 9): per-head RMSNorm of q and k before half-split RoPE.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

Hparams read(const base::Metadata& metadata) {
    const HparamReader reader{metadata, "qwen3"};
    Hparams h = reader.common();
    h.ropes.push_back(reader.rope(reader.int_or("rope.dimension_count", h.head_dim), ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kQwen3{"qwen3", {kEnds, kGqa, kQkNorm, kFfnNorm, kDenseFfn}, read};

}  // namespace model::architectures
