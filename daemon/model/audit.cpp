#include "daemon/model/audit.hpp"

#include <algorithm>

#include "daemon/base/error.hpp"
#include "daemon/model/fused_tensors.hpp"

namespace model {
namespace {

std::vector<std::int64_t> expected_shape(const TensorSpec& spec, const Hparams& hparams) {
    std::vector<std::int64_t> shape;
    for (const Dim dim : spec.shape)
        if (dim != Dim::none) shape.push_back(size_of(dim, hparams));
    return shape;
}

/// 3-D per-head tensors may be stored folded, heads being the outer factor of the rows
/// (architectures.md 2.7): the bytes are the same.
bool same_bytes(const std::vector<std::int64_t>& expected, const std::vector<std::int64_t>& found) {
    if (expected == found) return true;
    if (expected.size() == 3 && found.size() == 2)
        return expected[0] * expected[1] == found[0] && expected[2] == found[1];
    return false;
}

std::string joined(const std::vector<std::string_view>& names) {
    std::string text;
    for (const auto name : names) text += (text.empty() ? "" : ", ") + std::string{name};
    return text;
}

const Architecture& architecture_of(const ModelFile& file) {
    const std::string& name = file.metadata().get_string("general.architecture");
    if (const Architecture* found = find_architecture(name)) return *found;
    throw base::ModelError{file.path() + ": general.architecture: \"" + name +
                           "\" is not supported; supported: " + joined(architecture_names())};
}

/// Every layer has a feed-forward of a kind that the architecture has rows for.
void check_feed_forward(const AuditReport& report) {
    const Hparams& h = report.hparams;
    for (std::size_t l = 0; l < h.layers.size(); ++l) {
        const bool is_moe = h.layers[l].is_moe;
        if (report.architecture->spec(is_moe ? Role::ffn_down_exps : Role::ffn_down) != nullptr) continue;
        throw base::ModelError{"metadata keys \"" + h.arch + ".expert_count\", \"" + h.arch +
                               ".leading_dense_block_count\": layer " + std::to_string(l) + " is " +
                               (is_moe ? "a mixture of experts" : "dense") + ", which layers of " + h.arch +
                               " never are"};
    }
}

class Auditor {
public:
    Auditor(const ModelFile& file, AuditReport& report)
        : file_{file}, report_{report}, used_(file.tensors().size(), false) {}

    void run(const std::vector<std::string>& allow_unused) {
        const Hparams& h = report_.hparams;
        report_.map.whole.fill(-1);
        report_.map.layers.resize(static_cast<std::size_t>(h.num_layers + h.num_nextn_layers));
        for (auto& roles : report_.map.layers) roles.fill(-1);

        for (const auto fragment : report_.architecture->fragments) {
            for (const TensorSpec& spec : fragment) {
                if (!spec.is_layer()) {
                    match(spec, 0, need_of(spec.when, h), false, report_.map.whole);
                    continue;
                }
                for (std::int64_t l = 0; l < h.num_layers + h.num_nextn_layers; ++l)
                    match(spec, l, need_of(spec.when, h, l), l >= h.num_layers,
                          report_.map.layers[static_cast<std::size_t>(l)]);
            }
        }
        find_unused(allow_unused);
        if (report_.num_skipped > 0)
            report_.notes.push_back("skipped: " + std::to_string(report_.num_skipped) +
                                    " tensors of the model that are not run (NextN blocks, copies on "
                                    "shared index layers)");
    }

private:
    void defect(std::string subject, std::string message) {
        report_.defects.push_back({std::move(subject), std::move(message)});
    }

    void match(const TensorSpec& spec, std::int64_t layer, Need need, bool skipped,
               TensorMap::Roles& roles) {
        const std::string name = tensor_name(spec, layer);
        const std::int64_t index = file_.find(name);
        const std::int64_t fused = fused_index(spec, roles);
        const bool is_claimed = index >= 0 && used_[static_cast<std::size_t>(index)];
        if (is_claimed || (index < 0 && fused >= 0)) {  // a fused tensor, matched before, has it
            roles[static_cast<std::size_t>(spec.role)] = fused;
            return;
        }
        if (index < 0) {
            if (need == Need::required && spec.use != Use::fused)
                defect(name, "missing; expected " + shape_text(expected_shape(spec, report_.hparams)) +
                                 " (" + spec.hf + ")" + or_fused(spec, layer));
            return;
        }
        // A row that the layer does not have is left to find_unused, unless another row claims it.
        if (need == Need::unexpected) return;
        const FileTensor& tensor = file_.tensors()[static_cast<std::size_t>(index)];
        const auto expected = expected_shape(spec, report_.hparams);
        const bool fits = same_bytes(expected, tensor.shape);
        if (!fits && is_named_like_a_part(spec)) return;  // the part's row judges it
        used_[static_cast<std::size_t>(index)] = true;
        if (!fits) {
            defect(name, "expected shape " + shape_text(expected) + ", found " + shape_text(tensor.shape));
            return;
        }
        if (fused >= 0) {
            defect(name, "is also a part of \"" + file_.tensors()[static_cast<std::size_t>(fused)].name +
                             "\": expected one of the two");
            return;
        }
        if (skipped || spec.use == Use::skipped || is_shared_index_copy(spec, layer)) {
            ++report_.num_skipped;
            return;
        }
        ++report_.num_used;
        roles[static_cast<std::size_t>(spec.role)] = index;
    }

    template <class Predicate>
    [[nodiscard]] const TensorSpec* find_row(Predicate&& is_wanted) const {
        for (const auto fragment : report_.architecture->fragments)
            for (const TensorSpec& spec : fragment)
                if (is_wanted(spec)) return &spec;
        return nullptr;
    }

    /// The tensor that this parameter was found to be a part of, or -1.
    [[nodiscard]] std::int64_t fused_index(const TensorSpec& spec, const TensorMap::Roles& roles) const {
        const auto rows = fused_rows(spec.role, report_.hparams);
        return rows ? roles[static_cast<std::size_t>(rows->fused)] : -1;
    }

    /// ", or "blk.0.attn_qkv.weight" [512, 256]" where the architecture has such a row.
    [[nodiscard]] std::string or_fused(const TensorSpec& part, std::int64_t layer) const {
        const auto rows = fused_rows(part.role, report_.hparams);
        const TensorSpec* fused =
            rows ? find_row([&](const TensorSpec& spec) { return spec.role == rows->fused; }) : nullptr;
        if (fused == nullptr) return {};
        return ", or \"" + tensor_name(*fused, layer) + "\" " + shape_text(expected_shape(*fused, report_.hparams));
    }

    /// Whether one name stands for the fused tensor in some files and for a part of it in others.
    [[nodiscard]] bool is_named_like_a_part(const TensorSpec& fused) const {
        if (fused.use != Use::fused) return false;
        return find_row([&](const TensorSpec& spec) {
                   return spec.role != fused.role && std::string_view{spec.gguf} == fused.gguf;
               }) != nullptr;
    }

    [[nodiscard]] bool is_shared_index_copy(const TensorSpec& spec, std::int64_t layer) const {
        return spec.when == When::index_full_layer &&
               report_.hparams.layers[static_cast<std::size_t>(layer)].index_role != ASSAY_INDEX_FULL;
    }

    void find_unused(const std::vector<std::string>& allow_unused) {
        std::size_t allowed = 0;
        for (std::size_t i = 0; i < used_.size(); ++i) {
            if (used_[i]) continue;
            const std::string& name = file_.tensors()[i].name;
            const bool is_allowed =
                std::any_of(allow_unused.begin(), allow_unused.end(),
                            [&](const std::string& pattern) { return glob_match(pattern, name); });
            if (is_allowed)
                ++allowed;
            else
                defect(name, "not a parameter of architecture \"" +
                                 std::string{report_.architecture->name} +
                                 "\": nothing would read it. If that is intended, allow it with "
                                 "model.allow_unused_tensors");
        }
        if (allowed > 0)
            report_.notes.push_back("unused and allowed: " + std::to_string(allowed) + " tensors");
    }

    const ModelFile& file_;
    AuditReport& report_;
    std::vector<bool> used_;
};

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            mark = t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++mark;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

AuditReport audit(const ModelFile& file, const std::vector<std::string>& allow_unused) {
    AuditReport report;
    report.architecture = &architecture_of(file);
    report.hparams = report.architecture->read(HparamReader{file.metadata(), [&](std::string_view name) {
        const std::int64_t index = file.find(name);
        return index < 0 ? nullptr : &file.tensors()[static_cast<std::size_t>(index)].shape;
    }});
    check_feed_forward(report);
    report.notes = report.hparams.notes;
    Auditor{file, report}.run(allow_unused);
    return report;
}

std::string AuditReport::to_text() const {
    if (defects.empty()) return {};
    std::string text = defects.front().subject + ": " + defects.front().message;
    if (defects.size() > 1) {
        text = std::to_string(defects.size()) + " defects; first: " + text;
        for (const AuditFinding& d : defects) text += "\n  " + d.subject + ": " + d.message;
    }
    return text;
}

}  // namespace model
