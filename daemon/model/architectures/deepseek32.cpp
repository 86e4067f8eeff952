// deepseek32: DeepSeek V3.2 (architectures.md section 5). V3's block with an indexer on every layer,
// whose RoPE is half-split where the main one is interleaved. The Hadamard transform of the original
// is for 8-bit index keys and changes no score: queries and keys go through the same orthonormal
// matrix (4.4). It is left out.

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"
#include "daemon/model/architectures/mla.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSigmoid = 2;

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    (void)reader.get_int("expert_gating_func");  // no default: the file must say
    reader.read_moe(h, kSigmoid);
    read_mla(reader, h);
    read_indexer(reader, h, ASSAY_ROPE_NEOX);
    require_first_index(reader, h);
    return h;
}

}  // namespace

const Architecture kDeepseek32{"deepseek32",
                               {kEnds, kMla, kIndexer, kFfnNorm, kDenseFfn, kExperts, kRouterBias,
                                kSharedExperts, kNextn},
                               read};

}  // namespace model::architectures
