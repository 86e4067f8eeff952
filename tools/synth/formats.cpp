#include "formats.hpp"

#include <stdexcept>

namespace synth {

/// A recipe: the format of most matrices, of those that are worth more, of experts, and of the
/// head.
struct Mix {
    std::string_view name;
    std::string_view base, more, experts, head;
    std::uint32_t file_type;
};

namespace {

// clang-format off
constexpr Mix kMixes[] = {
    {"q2_k_m", "q2_k", "q3_k", "q2_k", "q6_k", 10},
    {"q3_k_m", "q3_k", "q5_k", "q3_k", "q6_k", 12},
    {"q4_k_m", "q4_k", "q6_k", "q4_k", "q6_k", 15},
    {"q5_k_m", "q5_k", "q6_k", "q5_k", "q6_k", 17},
    {"mxfp4_moe", "q8_0", "q8_0", "mxfp4", "q8_0", 38},
};

struct Fallback {
    std::string_view format, then;
};
constexpr Fallback kFallbacks[] = {
    {"q2_k", "q4_0"}, {"q3_k", "q4_0"}, {"q4_k", "q5_0"}, {"q5_k", "q5_1"}, {"q6_k", "q8_0"},
    {"tq1_0", "q4_0"}, {"tq2_0", "q4_0"}, {"q1_0", "q4_0"}, {"q2_0", "q4_0"}, {"nvfp4", "mxfp4"},
};
// general.file_type of a file with one format.
struct FileType {
    std::string_view format;
    std::uint32_t id;
};
constexpr FileType kFileTypes[] = {{"f32", 0}, {"f16", 1}, {"q4_0", 2}, {"q4_1", 3}, {"q8_0", 7}, {"q5_0", 8},
                                   {"q5_1", 9}, {"q6_k", 18}, {"iq4_nl", 25}, {"iq4_xs", 30}, {"bf16", 32}};
// clang-format on

std::string_view fallback_of(std::string_view format) {
    for (const Fallback& f : kFallbacks)
        if (f.format == format) return f.then;
    return format.starts_with("iq") && format != "iq4_nl" ? "iq4_nl" : "f16";
}

/// The layers whose sensitive matrices a mix stores better: the first and last eighth, and every
/// third.
bool is_worth_more(std::int64_t layer, std::int64_t num_layers) {
    const std::int64_t eighth = num_layers / 8;
    return layer < eighth || layer >= num_layers - eighth || (layer - eighth) % 3 == 2;
}

}  // namespace

std::vector<std::string_view> mix_names() {
    std::vector<std::string_view> names;
    for (const Mix& mix : kMixes) names.push_back(mix.name);
    return names;
}

FormatMix::FormatMix(std::string_view name, const model::Hparams& hparams)
    : num_layers_{hparams.num_layers}, num_experts_{hparams.num_experts} {
    for (const Mix& mix : kMixes)
        if (mix.name == name) mix_ = &mix;
    if (mix_ != nullptr) return;
    if (gguf::find_type(name) == nullptr) {
        std::string list;
        for (const Mix& mix : kMixes) list += (list.empty() ? "" : ", ") + std::string{mix.name};
        throw std::invalid_argument{"formats \"" + std::string{name} + "\": expected a mix (" +
                                    list + ") or a format such as q8_0, q4_0, iq4_xs, bf16"};
    }
    format_ = name;
}

std::uint32_t FormatMix::file_type() const {
    if (mix_ != nullptr) return mix_->file_type;
    for (const FileType& type : kFileTypes)
        if (type.format == format_) return type.id;
    return 1024;  // "guessed"
}

std::string_view FormatMix::wanted(const model::TensorSpec& spec, std::int64_t layer) const {
    if (mix_ == nullptr) return format_;
    const std::string_view name = spec.gguf;
    const auto is = [name](std::string_view part) {
        return name.find(part) != std::string_view::npos;
    };
    if (spec.role == model::Role::output) return mix_->head;
    if (spec.use == model::Use::grouped)
        return is("ffn_down") && mix_->experts == mix_->base && is_worth_more(layer, num_layers_)
                   ? mix_->more
                   : mix_->experts;
    if (num_experts_ == 8 && (is("attn_k.") || is("attn_v."))) return "q8_0";
    if ((is("ffn_down.") || is("attn_v.")) && is_worth_more(layer, num_layers_)) return mix_->more;
    return mix_->base;
}

const gguf::TensorType& FormatMix::of(const model::TensorSpec& spec, std::int64_t layer,
                                      std::uint64_t row) const {
    const std::string_view name = spec.gguf;
    const auto has = [name](std::string_view part) {
        return name.find(part) != std::string_view::npos;
    };
    const bool is_plain = spec.use == model::Use::vector || spec.shape[1] == model::Dim::none ||
                          has("_norm.") || has("norm.weight") || name.ends_with(".bias") ||
                          has("ffn_gate_inp") || has("indexer.proj");
    if (is_plain) return *gguf::find_type(std::string_view{"f32"});
    std::string_view format = wanted(spec, layer);
    const gguf::TensorType* type = gguf::find_type(format);
    while (row % type->block_elements != 0) {
        format = fallback_of(format);
        type = gguf::find_type(format);
    }
    return *type;
}

}  // namespace synth
