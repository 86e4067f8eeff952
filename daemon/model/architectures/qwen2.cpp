// qwen2: Qwen 1.5, 2 and 2.5, dense (architectures.md section 8). Biases on q, k and v, which are
// added before half-split RoPE.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"

namespace model::architectures {
namespace {

// clang-format off
constexpr TensorSpec kOutputBias[] = {
    {Role::output_bias, "output.bias", "lm_head.bias", {Dim::vocab}, Use::vector, Shard::vocab, When::optional},
};
// clang-format on

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    h.ropes.push_back(reader.head_rope(h, ASSAY_ROPE_NEOX));
    return h;
}

}  // namespace

const Architecture kQwen2{"qwen2",
                          {kEnds, kOutputBias, kGqa, kQkvBias<When::always>, kFfnNorm, kDenseFfn},
                           read};

}  // namespace model::architectures
