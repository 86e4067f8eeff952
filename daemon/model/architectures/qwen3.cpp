// qwen3, dense (architectures.md section 9): per-head RMSNorm of q and k before half-split RoPE.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kQwen3{"qwen3",
                          {kEnds, kGqa, kQkNorm<When::always>, kFfnNorm, kDenseFfn},
                           read};

}  // namespace model::architectures
