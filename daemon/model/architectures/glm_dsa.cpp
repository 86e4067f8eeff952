// glm-dsa: GLM-5, 5.1, 5.2 (architectures.md section 4). DeepSeek-V3's block with an indexer whose
// RoPE is interleaved like the main one, shared index layers, sigmoid routing with a bias, and one
// NextN block that is recognised and skipped.

#include <algorithm>

#include "daemon/model/architectures/fragments.hpp"
#include "daemon/model/architectures/list.hpp"
#include "daemon/model/architectures/mla.hpp"

namespace model::architectures {
namespace {

constexpr std::int32_t kSigmoid = 2;

bool has_indexer(const HparamReader& reader, std::int64_t layer) {
    return std::any_of(std::begin(kIndexer), std::end(kIndexer), [&](const TensorSpec& spec) {
        return reader.shape(tensor_name(spec, layer)) != nullptr;
    });
}

/// Roles of a file without attention.indexer.types (4.5, rules 2 to 4): layers without an indexer
/// share; where all have one, GLM-5.2 is known by its context or its theta, and some of its files
/// hold copies on shared layers.
void infer_index_roles(const HparamReader& reader, Hparams& h) {
    std::vector<bool> has(h.layers.size());
    for (std::size_t l = 0; l < has.size(); ++l) has[l] = has_indexer(reader, static_cast<std::int64_t>(l));
    const auto count = std::count(has.begin(), has.end(), true);
    const bool is_subset = count > 0 && count < static_cast<std::ptrdiff_t>(has.size());
    const bool is_52 = h.context_length >= 1'048'576 || h.ropes.front().theta == 8e6;
    if (!is_subset && !is_52) return;  // GLM-5, 5.1: every layer chooses
    for (std::size_t l = 0; l < has.size(); ++l) {
        const bool is_full = is_subset ? has[l] : l <= 1 || l % 4 == 2;
        h.layers[l].index_role = is_full ? ASSAY_INDEX_FULL : ASSAY_INDEX_SHARED;
    }
    h.notes.push_back(reader.key("attention.indexer.types") + " is missing: " +
                      (is_subset ? "the " + std::to_string(count) + " layers with an indexer choose positions, the " +
                                       std::to_string(static_cast<std::ptrdiff_t>(has.size()) - count) +
                                       " without share the choice before them"
                                 : std::string{"layers 0, 1, 2 and every fourth from there choose positions, as in "
                                               "GLM-5.2"}));
}

Hparams read(const HparamReader& reader) {
    Hparams h = reader.common();
    reader.read_moe(h, kSigmoid);
    read_mla(reader, h);
    read_indexer(reader, h, ASSAY_ROPE_NORM);
    if (!reader.metadata().contains(reader.key("attention.indexer.types"))) infer_index_roles(reader, h);
    require_first_index(reader, h);
    return h;
}

}  // namespace

const Architecture kGlmDsa{"glm-dsa",
                           {kEnds, kMla, kIndexer, kFfnNorm, kDenseFfn, kExperts, kRouterBias,
                            kSharedExperts, kNextn},
                           read};

}  // namespace model::architectures
