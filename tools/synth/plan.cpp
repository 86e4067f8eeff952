#include "plan.hpp"

#include "daemon/base/error.hpp"
#include "daemon/model/audit.hpp"
#include "daemon/model/fused_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace synth {
namespace {

base::Metadata metadata_of(const std::string& arch, const Keys& keys) {
    base::Metadata metadata;
    metadata.set("general.architecture", arch);
    for (const auto& [key, value] : keys.all()) metadata.set(arch + "." + key, value);
    return metadata;
}

const model::Architecture& architecture(const std::string& name) {
    if (const model::Architecture* found = model::find_architecture(name)) return *found;
    std::string list;
    for (const std::string_view known : model::architecture_names())
        list += (list.empty() ? "" : ", ") + std::string{known};
    throw base::ModelError{"architecture \"" + name + "\" is not supported; supported: " + list};
}

class Planner {
public:
    Planner(ModelPlan& plan, const model::Architecture& architecture,
            const std::vector<std::string>& optional)
        : plan_{plan},
          h_{plan.hparams},
          architecture_{architecture},
          optional_{optional},
          mix_{plan.formats, h_} {}

    void run() {
        plan_.file_type = mix_.file_type();
        add_rows(false, 0,
                 [this](const model::TensorSpec& spec) { return model::need_of(spec.when, h_); });
        for (std::int64_t l = 0; l < h_.num_layers + h_.num_nextn_layers; ++l)
            add_rows(true, l, [this, l](const model::TensorSpec& spec) { return need(spec, l); });
    }

private:
    /// A NextN block is optional as a whole; it is built like the last trunk layer, with an index
    /// of its own.
    [[nodiscard]] model::Need need(const model::TensorSpec& spec, std::int64_t layer) const {
        using model::Need, model::When;
        if (layer < h_.num_layers) return model::need_of(spec.when, h_, layer);
        if (spec.when == When::index_full_layer) return Need::required;
        if (spec.when != When::nextn_optional)
            return model::need_of(spec.when, h_, h_.num_layers - 1);
        const bool is_copy = spec.role == model::Role::nextn_embed_tokens ||
                             spec.role == model::Role::nextn_shared_head_head;
        return is_copy ? Need::optional : Need::required;
    }

    /// The rows of one layer, or of the whole model, in the order of the table, in which a fused
    /// tensor stands before its parts: the parts of one that is there are not.
    template <class NeedOf>
    void add_rows(bool of_layer, std::int64_t layer, NeedOf&& need_of_row) {
        std::vector<model::Role> fused;
        for (const auto fragment : architecture_.fragments)
            for (const model::TensorSpec& spec : fragment) {
                if (spec.is_layer() != of_layer || !is_wanted(spec, need_of_row(spec), layer))
                    continue;
                const auto rows = model::fused_rows(spec.role, h_);
                if (rows && std::find(fused.begin(), fused.end(), rows->fused) != fused.end())
                    continue;
                if (spec.use == model::Use::fused) fused.push_back(spec.role);
                add(spec, layer);
            }
    }

    [[nodiscard]] bool is_wanted(const model::TensorSpec& spec, model::Need need,
                                 std::int64_t layer) const {
        if (need == model::Need::required && spec.use != model::Use::fused) return true;
        if (need == model::Need::unexpected) return false;
        const std::string name = model::tensor_name(spec, layer);
        return std::any_of(optional_.begin(), optional_.end(), [&](const std::string& pattern) {
            return model::glob_match(pattern, name);
        });
    }

    void add(const model::TensorSpec& spec, std::int64_t layer) {
        PlannedTensor t;
        t.name = model::tensor_name(spec, layer);
        for (const model::Dim dim : spec.shape)
            if (dim != model::Dim::none)
                t.ne.insert(t.ne.begin(), static_cast<std::uint64_t>(model::size_of(dim, h_)));
        t.type = &mix_.of(spec, layer, t.ne.front());
        std::uint64_t elements = 1;
        for (const std::uint64_t n : t.ne) elements *= n;
        if (elements == 0) throw std::invalid_argument{t.name + ": a size of this tensor is 0"};
        t.bytes = elements / t.type->block_elements * t.type->block_bytes;
        choose_content(t, spec);
        plan_.tensors.push_back(std::move(t));
    }

    /// Each product keeps the scale of its input: weights of 1/sqrt(row), norms about 1.
    static void choose_content(PlannedTensor& t, const model::TensorSpec& spec) {
        const auto around = [&t](double centre, double spread) {
            t.content = Content::around;
            t.centre = centre;
            t.spread = spread;
        };
        if (spec.role == model::Role::rope_freqs)
            t.content = Content::rope_factors;
        else if (t.name.ends_with(".bias"))
            around(0.0, 0.05);
        else if (t.name.find("norm") != std::string::npos)
            around(1.0, 0.1);
        else if (t.ne.size() == 1)
            around(0.0, 1.0);
        else
            t.rms = 1.0 / std::sqrt(static_cast<double>(t.ne.front()));
    }

    ModelPlan& plan_;
    const model::Hparams& h_;
    const model::Architecture& architecture_;
    const std::vector<std::string>& optional_;
    FormatMix mix_;
};

}  // namespace

std::uint64_t ModelPlan::data_bytes() const {
    std::uint64_t sum = 0;
    for (const PlannedTensor& t : tensors) sum += t.bytes;
    return sum;
}

ModelPlan make_plan(std::string name, std::string arch, Keys keys, std::string pre,
                    const std::vector<std::string>& optional, const std::string& formats) {
    ModelPlan plan;
    plan.name = std::move(name);
    plan.arch = std::move(arch);
    plan.pre = std::move(pre);
    plan.formats = formats;
    plan.keys = std::move(keys);
    const model::Architecture& table = architecture(plan.arch);
    const base::Metadata metadata = metadata_of(plan.arch, plan.keys);
    plan.hparams = table.read(model::HparamReader{metadata});
    Planner{plan, table, optional}.run();
    return plan;
}

}  // namespace synth
