// glm-dsa: GLM-5, 5.1, 5.2 (architectures.md section 4). DeepSeek-V3's block with an indexer whose
// RoPE is interleaved like the main one, shared index layers, sigmoid routing with a bias, and one
// NextN block that is recognised and skipped.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"
#include "daemon/model/architectures/mla.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSigmoid = 2;

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    reader.read_moe(h, kSigmoid);
    read_mla(reader, h);
    read_indexer(reader, h, ASSAY_ROPE_NORM);
    return h;
}

}  // namespace

const Architecture kGlmDsa{"glm-dsa",
                           {kEnds, kMla, kIndexer, kFfnNorm, kDenseFfn, kExperts, kRouterBias,
                            kSharedExperts, kNextn},
                           read};

}  // namespace model::architectures
