// Runner: attention of one layer. Formulas: architectures.md sections 1.5, 2.2, 2.4, 4.3, 4.4.

#include <cmath>

#include "cxx/plugin.hpp"
#include "daemon/model/runner_buffers.hpp"

namespace model {
namespace {

/// Dimensions [from, to) of the last axis.
assay_tensor slice(assay_tensor t, std::int64_t from, std::int64_t to) {
    t.data = static_cast<float*>(t.data) + from;
    t.shape[t.rank - 1] = to - from;
    return t;
}

/// [T, n] seen as [T, 1, n].
assay_tensor one_head(const assay_tensor& t) {
    assay_tensor out = t;
    out.rank = 3;
    out.shape[1] = 1;
    out.stride[1] = t.shape[1];
    out.shape[2] = t.shape[1];
    out.stride[2] = t.stride[1];
    return out;
}

/// [T, heads, n] seen as [T, heads * n]; dense.
assay_tensor flat(const assay_tensor& t) {
    return sdk::make_tensor(t.data, ASSAY_F32, t.shape[0], t.shape[1] * t.shape[2]);
}

}  // namespace

void Runner::rope(const char* name, const assay_tensor& x, const assay_tensor& out, std::int32_t style) {
    const auto r = static_cast<std::size_t>(h_.layers[static_cast<std::size_t>(layer_)].rope);
    const assay_tensor table =
        sdk::make_tensor(b_->cos_sin[r].data(), ASSAY_F32, x.shape[0], 2, h_.ropes[r].n_rot / 2);
    launcher_.op(name, [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.rope(self, &x, &table, style, &out, s);
    });
}

void Runner::attention_gqa(std::int64_t T) {
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor u = sdk::make_tensor(b_->u.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor q = sdk::make_tensor(b_->q.data(), ASSAY_F32, T, h_.num_q_heads, h_.head_dim);
    const assay_tensor k = sdk::make_tensor(b_->k.data(), ASSAY_F32, T, h_.num_kv_heads, h_.head_dim);
    const assay_tensor v = sdk::make_tensor(b_->v.data(), ASSAY_F32, T, h_.num_kv_heads, h_.v_head_dim);
    const assay_tensor o = sdk::make_tensor(b_->o.data(), ASSAY_F32, T, h_.num_q_heads, h_.v_head_dim);

    rmsnorm("attn_norm", x, w(Role::attn_norm), u);
    launcher_.tap("attn_norm", u);
    launcher_.matmul("attn_qkv", u,
                     {{&w(Role::attn_q), flat(q), &w(Role::attn_q_bias)},
                      {&w(Role::attn_k), flat(k), &w(Role::attn_k_bias)},
                      {&w(Role::attn_v), flat(v), &w(Role::attn_v_bias)}},
                     0, fused().qkv);
    if (const Weight& norm = w(Role::attn_q_norm)) rmsnorm("attn_q_norm", q, norm, q);
    if (const Weight& norm = w(Role::attn_k_norm)) rmsnorm("attn_k_norm", k, norm, k);
    const std::int32_t style =
        h_.ropes[static_cast<std::size_t>(h_.layers[static_cast<std::size_t>(layer_)].rope)].style;
    rope("rope q", q, q, style);
    rope("rope k", k, k, style);
    launcher_.tap("q", q);
    launcher_.tap("k", k);
    launcher_.tap("v", v);
    attend(q, k, v, o);
    launcher_.tap("attention", o);

    const Weight& post_norm = w(Role::post_attention_norm);
    launcher_.matmul("attn_output", flat(o),
                     {{&w(Role::attn_output), block_output(post_norm, T), &w(Role::attn_output_bias)}},
                     block_flags(post_norm));
    add_block("post_attention_norm", post_norm, T);
    launcher_.tap("attn_residual", x);
}

void Runner::attention_mla(std::int64_t T) {
    const std::int64_t L = h_.kv_lora_rank, R = h_.qk_rope_head_dim, N = h_.qk_nope_head_dim;
    const std::int64_t H = h_.num_q_heads;
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor u = sdk::make_tensor(b_->u.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor q = sdk::make_tensor(b_->q.data(), ASSAY_F32, T, H, N + R);
    const assay_tensor latent = sdk::make_tensor(b_->latent.data(), ASSAY_F32, T, L + R);
    const assay_tensor absorbed = sdk::make_tensor(b_->q_absorbed.data(), ASSAY_F32, T, H, L + R);
    const assay_tensor z = sdk::make_tensor(b_->z.data(), ASSAY_F32, T, H, L);
    const assay_tensor o = sdk::make_tensor(b_->o.data(), ASSAY_F32, T, H, h_.v_head_dim);

    rmsnorm("attn_norm", x, w(Role::attn_norm), u);
    launcher_.tap("attn_norm", u);
    if (h_.q_lora_rank > 0) {
        const assay_tensor qr = sdk::make_tensor(b_->qr.data(), ASSAY_F32, T, h_.q_lora_rank);
        launcher_.matmul("attn_q_a, attn_kv_a", u,
                         {{&w(Role::attn_q_a), qr}, {&w(Role::attn_kv_a), latent}}, 0, fused().a);
        rmsnorm("attn_q_a_norm", qr, w(Role::attn_q_a_norm), qr);
        launcher_.matmul("attn_q_b", qr, {{&w(Role::attn_q_b), flat(q)}});
    } else {
        launcher_.matmul("attn_q, attn_kv_a", u,
                         {{&w(Role::attn_q), flat(q)}, {&w(Role::attn_kv_a), latent}}, 0, fused().a);
    }

    // The latent is normalised, the shared rope key is not.
    const assay_tensor c = slice(latent, 0, L);
    rmsnorm("attn_kv_a_norm", c, w(Role::attn_kv_a_norm), c);
    const assay_tensor k_pe = one_head(slice(latent, L, L + R));
    rope("rope k", k_pe, k_pe, ASSAY_ROPE_NORM);
    // q~_h = K_h^T q_nope_h, so that every head meets the one latent key.
    launcher_.batched("attn_k_b", slice(q, 0, N), w(Role::attn_k_b), slice(absorbed, 0, L));
    rope("rope q", slice(q, N, N + R), slice(absorbed, L, L + R), ASSAY_ROPE_NORM);
    launcher_.tap("q", absorbed);
    launcher_.tap("k", latent);

    if (h_.layers[static_cast<std::size_t>(layer_)].index_role == ASSAY_INDEX_FULL) index_prologue(T);
    attend(absorbed, latent, {}, z);
    launcher_.tap("attention", z);

    launcher_.batched("attn_v_b", z, w(Role::attn_v_b), o);
    const Weight& post_norm = w(Role::post_attention_norm);
    launcher_.matmul("attn_output", flat(o), {{&w(Role::attn_output), block_output(post_norm, T)}},
                     block_flags(post_norm));
    add_block("post_attention_norm", post_norm, T);
    launcher_.tap("attn_residual", x);
}

void Runner::index_prologue(std::int64_t T) {
    const assay_tensor u = sdk::make_tensor(b_->u.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor qr = sdk::make_tensor(b_->qr.data(), ASSAY_F32, T, h_.q_lora_rank);
    const assay_tensor iq =
        sdk::make_tensor(b_->index_q.data(), ASSAY_F32, T, h_.index_n_heads, h_.index_head_dim);
    const assay_tensor ik = sdk::make_tensor(b_->index_k.data(), ASSAY_F32, T, h_.index_head_dim);
    const assay_tensor iw = sdk::make_tensor(b_->index_w.data(), ASSAY_F32, T, h_.index_n_heads);

    launcher_.matmul("indexer.attn_q_b", qr, {{&w(Role::index_q_b), flat(iq)}});
    launcher_.matmul("indexer.attn_k, indexer.proj", u,
                     {{&w(Role::index_k), ik}, {&w(Role::index_weights), iw}}, 0, fused().index);
    const assay_tensor scale = w(Role::index_k_norm).vector();
    const assay_tensor bias = w(Role::index_k_norm_bias).vector();
    launcher_.op("indexer.k_norm", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.layernorm(self, &ik, &scale, &bias, static_cast<float>(h_.index_norm_eps), &ik, s);
    });
    rope("rope index q", iq, iq, h_.index_rope_style);
    rope("rope index k", one_head(ik), one_head(ik), h_.index_rope_style);
    const double factor =
        1.0 / std::sqrt(static_cast<double>(h_.index_n_heads) * static_cast<double>(h_.index_head_dim));
    launcher_.op("indexer scale", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.scale(self, &iw, static_cast<float>(factor), &iw, s);
    });
    launcher_.tap("index_q", iq);
    launcher_.tap("index_k", ik);
    launcher_.tap("index_weights", iw);
}

void Runner::attend(const assay_tensor& q, const assay_tensor& k, const assay_tensor& v,
                    const assay_tensor& out) {
    const auto layer = static_cast<std::uint32_t>(layer_);
    const std::int64_t T = q.shape[0];
    const std::int32_t role = h_.layers[static_cast<std::size_t>(layer_)].index_role;
    assay_attn_args args{};
    args.size = sizeof args;
    cache_.planes(layer_, args.planes);
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.workspace = b_->attention_workspace.data();
    args.workspace_bytes = attention_workspace_bytes_;
    if (const Weight& sinks = w(Role::attn_sinks)) args.sinks = sinks.vector();
    if (role == ASSAY_INDEX_FULL)
        args.index_k = sdk::make_tensor(b_->index_k.data(), ASSAY_F32, T, h_.index_head_dim);
    if (role != ASSAY_INDEX_NONE)
        args.topk_slots = sdk::make_tensor(b_->topk.data(), ASSAY_I32, T, h_.index_topk);

    for (std::size_t i = 0; i < num_parts_; ++i) {
        const Part& part = parts_[i];
        args.batch = &part.batch;
        args.phase = part.phase;
        args.plan = part.plan;
        launcher_.append(*part.plugin, layer, args);
        if (role == ASSAY_INDEX_FULL) {
            assay_attn_index_args index{};
            index.size = sizeof index;
            index.batch = &part.batch;
            index.phase = part.phase;
            cache_.planes(layer_, index.planes);
            index.q = sdk::make_tensor(b_->index_q.data(), ASSAY_F32, T, h_.index_n_heads, h_.index_head_dim);
            index.head_weight = sdk::make_tensor(b_->index_w.data(), ASSAY_F32, T, h_.index_n_heads);
            index.topk_slots = args.topk_slots;
            index.plan = part.plan;
            index.workspace = args.workspace;
            index.workspace_bytes = args.workspace_bytes;
            launcher_.index(*part.plugin, layer, index);
        }
        launcher_.attend(*part.plugin, layer, args);
    }
    if (role != ASSAY_INDEX_NONE) launcher_.tap("topk_slots", args.topk_slots);
}

}  // namespace model
