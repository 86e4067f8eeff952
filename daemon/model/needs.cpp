#include "daemon/model/needs.hpp"

#include <algorithm>
#include <tuple>

#include "daemon/model/kv_b.hpp"

namespace model {

assay_quant_op op_of(Use use) {
    switch (use) {
        case Use::matmul: return ASSAY_Q_MATMUL;
        case Use::batched: return ASSAY_Q_BATCHED;
        case Use::grouped: return ASSAY_Q_GROUPED;
        default: return ASSAY_Q_ROWS;
    }
}

namespace {

const char* op_word(std::int32_t op) {
    switch (op) {
        case ASSAY_Q_MATMUL: return "matmul";
        case ASSAY_Q_BATCHED: return "per-head matmul";
        case ASSAY_Q_GROUPED: return "grouped matmul";
        default: return "row gather";
    }
}

class Collector {
public:
    Collector(const ModelFile& file, const Hparams& hparams, std::int64_t max_tokens)
        : file_{file}, hparams_{hparams}, max_tokens_{max_tokens} {}

    /// @param roles  of the layer (or of the whole model): what stands beside the tensor
    void add(std::int64_t index, const TensorSpec& spec, Use use, const TensorMap::Roles& roles) {
        const FileTensor& tensor = file_.tensors()[static_cast<std::size_t>(index)];
        if (use == Use::fused) return;                             // its parts are multiplied by
        if (use == Use::vector && tensor.format == "f32") return;  // copied as it is
        add(tensor, tensor.format, spec, use, roles);
    }

    /// attn_kv_b is read row by row; its halves are multiplied with where the file has no others, and
    /// those are read row by row too where it has.
    void add_kv_b(const Architecture& architecture, std::int64_t index, const TensorSpec& spec,
                  const TensorMap::Roles& roles) {
        const FileTensor& kv_b = file_.tensors()[static_cast<std::size_t>(index)];
        add(kv_b, kv_b.format, spec, Use::rows, roles);
        for (const Role role : {Role::attn_k_b, Role::attn_v_b}) {
            const TensorSpec& half = *architecture.spec(role);
            const std::int64_t own = roles[static_cast<std::size_t>(role)];
            if (own >= 0)
                add(own, half, Use::rows, roles);
            else
                add(kv_b, role == Role::attn_k_b ? split_key_format(kv_b.format) : kv_b.format, half, half.use, roles);
        }
    }

    std::vector<plugin::QuantNeed> needs;

private:
    /// @param format  that the weight is held in: that of the tensor, or of what is made of it
    void add(const FileTensor& tensor, const std::string& format, const TensorSpec& spec, Use use,
             const TensorMap::Roles& roles) {
        assay_quant_query q{};
        q.size = sizeof q;
        q.op = op_of(use);
        q.x_dtype = ASSAY_F32;
        q.y_dtype = ASSAY_F32;
        q.num_weights = 1;
        q.flags = precision_flags(spec, hparams_) | (accumulates(spec.role, roles) ? ASSAY_MM_ACCUMULATE : 0U);
        q.bias = has_bias(spec.role, roles);
        const std::vector<std::int64_t> shape = logical_shape(spec, tensor);
        q.k = shape.back();
        q.n = shape.size() > 1 ? shape[shape.size() - 2] : 1;
        q.experts = shape.size() > 2 ? shape[0] : 1;
        q.m = use == Use::grouped ? max_tokens_ * hparams_.num_experts_per_tok : max_tokens_;
        for (const plugin::QuantNeed& need : needs)
            if (need.format == format && same(need.query, q)) return;
        needs.push_back({tensor.name + " " + format + ", " + op_word(q.op) + ", m <= " +
                             std::to_string(q.m) + ", n " + std::to_string(q.n) + ", k " +
                             std::to_string(q.k) + ((q.flags & ASSAY_MM_PRECISE) != 0 ? ", precise" : (q.flags & ASSAY_MM_FINE) != 0 ? ", fine" : "") +
                             ((q.flags & ASSAY_MM_ACCUMULATE) != 0 ? ", accumulating" : "") +
                             (q.bias ? ", with bias" : ""),
                         format, q});
    }

    std::vector<std::int64_t> logical_shape(const TensorSpec& spec, const FileTensor& tensor) const {
        std::vector<std::int64_t> shape;
        for (const Dim dim : spec.shape)
            if (dim != Dim::none) shape.push_back(size_of(dim, hparams_));
        return shape.empty() ? tensor.shape : shape;
    }

    static bool has(const TensorMap::Roles& roles, Role role) {
        return roles[static_cast<std::size_t>(role)] >= 0;
    }

    /// Products that the runner adds to what is there: the last of a block without a norm behind it
    /// goes to the residual stream, the shared expert's to the routed experts' sum.
    static bool accumulates(Role role, const TensorMap::Roles& roles) {
        switch (role) {
            case Role::attn_output: return !has(roles, Role::post_attention_norm);
            case Role::ffn_down: return !has(roles, Role::post_ffw_norm);
            case Role::ffn_down_shexp: return true;
            default: return false;
        }
    }

    static bool has_bias(Role role, const TensorMap::Roles& roles) {
        const Role bias = bias_of(role);
        return bias != Role::count && has(roles, bias);
    }

    static bool same(const assay_quant_query& a, const assay_quant_query& b) {
        return std::tie(a.op, a.flags, a.bias, a.k, a.n, a.experts, a.m) ==
               std::tie(b.op, b.flags, b.bias, b.k, b.n, b.experts, b.m);
    }

    const ModelFile& file_;
    const Hparams& hparams_;
    std::int64_t max_tokens_;
};

bool alike(const assay_attn_layer& a, const assay_attn_layer& b) {
    const auto key = [](const assay_attn_layer& l) {
        return std::make_tuple(l.attn_class, l.num_q_heads, l.num_kv_heads, l.head_dim, l.v_head_dim,
                               l.kv_lora_rank, l.qk_nope_head_dim, l.qk_rope_head_dim, l.index_role,
                               l.index_n_heads, l.index_head_dim, l.index_topk, l.window,
                               l.softmax_scale, l.logit_softcap, l.has_sinks);
    };
    return key(a) == key(b);
}

/// "layer 2", "layers 0, 3-5".
std::string layers_label(const std::vector<std::size_t>& layers) {
    std::string text = layers.size() == 1 ? "layer " : "layers ";
    for (std::size_t i = 0; i < layers.size();) {
        std::size_t j = i;
        while (j + 1 < layers.size() && layers[j + 1] == layers[j] + 1) ++j;
        text += (i == 0 ? "" : ", ") + std::to_string(layers[i]);
        if (j > i) text += "-" + std::to_string(layers[j]);
        i = j + 1;
    }
    return text;
}

}  // namespace

std::vector<plugin::QuantNeed> quant_needs(const ModelFile& file, const AuditReport& audit,
                                           std::int64_t max_tokens) {
    Collector collector{file, audit.hparams, max_tokens};
    for (const auto fragment : audit.architecture->fragments) {
        for (const TensorSpec& spec : fragment) {
            const auto role = static_cast<std::size_t>(spec.role);
            if (!spec.is_layer()) {
                const std::int64_t own = audit.map.whole[role];
                if (own >= 0) collector.add(own, spec, spec.use, audit.map.whole);
                // Tied: the embedding serves as the output head too.
                if (own < 0 && spec.role == Role::output)
                    collector.add(audit.map.whole[static_cast<std::size_t>(Role::token_embd)], spec,
                                  Use::matmul, audit.map.whole);
                continue;
            }
            for (const TensorMap::Roles& roles : audit.map.layers) {
                if (roles[role] < 0) continue;
                if (spec.use == Use::kv_b)
                    collector.add_kv_b(*audit.architecture, roles[role], spec, roles);
                else
                    collector.add(roles[role], spec, spec.use, roles);
            }
        }
    }
    for (plugin::QuantNeed& need : collector.needs) need.query.format = nullptr;  // set by the resolver
    return std::move(collector.needs);
}

std::vector<assay_attn_layer> attention_layers(const Hparams& h) {
    std::vector<assay_attn_layer> layers;
    for (const LayerParams& params : h.layers) {
        assay_attn_layer l{};
        l.size = sizeof l;
        l.attn_class = h.attn_class;
        l.num_q_heads = static_cast<std::int32_t>(h.num_q_heads);
        l.num_kv_heads = static_cast<std::int32_t>(h.num_kv_heads);
        l.head_dim = static_cast<std::int32_t>(h.head_dim);
        l.v_head_dim = static_cast<std::int32_t>(h.v_head_dim);
        l.kv_lora_rank = static_cast<std::int32_t>(h.kv_lora_rank);
        l.qk_nope_head_dim = static_cast<std::int32_t>(h.qk_nope_head_dim);
        l.qk_rope_head_dim = static_cast<std::int32_t>(h.qk_rope_head_dim);
        l.index_role = params.index_role;
        l.index_n_heads = static_cast<std::int32_t>(h.index_n_heads);
        l.index_head_dim = static_cast<std::int32_t>(h.index_head_dim);
        l.index_topk = static_cast<std::int32_t>(h.index_topk);
        l.window = params.window;
        l.softmax_scale = static_cast<float>(h.softmax_scale);
        l.logit_softcap = static_cast<float>(h.attn_logit_softcap);
        l.has_sinks = h.has_sinks;
        layers.push_back(l);
    }
    return layers;
}

std::vector<plugin::AttentionNeed> attention_needs(const Hparams& hparams) {
    const auto layers = attention_layers(hparams);
    std::vector<std::pair<assay_attn_layer, std::vector<std::size_t>>> groups;
    for (std::size_t l = 0; l < layers.size(); ++l) {
        const auto group = std::find_if(groups.begin(), groups.end(),
                                        [&](const auto& g) { return alike(g.first, layers[l]); });
        if (group == groups.end())
            groups.push_back({layers[l], {l}});
        else
            group->second.push_back(l);
    }
    std::vector<plugin::AttentionNeed> needs;
    for (const auto& [layer, indices] : groups) needs.push_back({layers_label(indices), layer});
    return needs;
}

}  // namespace model
