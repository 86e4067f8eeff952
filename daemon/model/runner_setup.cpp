// Runner: what happens once, before the first step.

#include <algorithm>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"
#include "daemon/model/runner_buffers.hpp"

namespace model {
namespace {

/// Largest workspace so far, with that of one call. Nothing for weights that the layer does not have.
void grow(std::uint64_t& bytes, assay_quant_op op, std::initializer_list<const Weight*> weights,
          std::int64_t m) {
    const assay_weight* abi[ASSAY_MAX_FUSED] = {};
    std::int32_t count = 0;
    for (const Weight* w : weights) {
        if (!*w) return;
        abi[count++] = &w->abi;
    }
    const plugin::Quant& quant = *(*weights.begin())->quant;
    if (quant.api().workspace_bytes == nullptr) return;
    bytes = std::max(bytes, quant.api().workspace_bytes(quant.self(), op, abi, count, m));
}

}  // namespace

Runner::Runner(const Hparams& hparams, const Weights& weights, const plugin::Device& device,
               const AttentionBackends& attention, const KvCache& cache, const plugin::Stream& stream,
               const RunnerLimits& limits)
    : h_{hparams},
      weights_{weights},
      device_{device},
      attention_{attention},
      cache_{cache},
      stream_{stream},
      limits_{limits},
      b_{std::make_unique<Buffers>()},
      launcher_{device, stream.get()},
      inputs_read_{device, stream} {
    choose_fusions();
    require_ops();
    allocate();
    size_workspaces();
    launcher_.set_workspace(b_->quant_workspace.data(), b_->quant_workspace.bytes());
    if (limits.capture_graphs && GraphCache::is_offered(device) && attention.decode->is_capturable(h_.attn_class))
        graphs_ = std::make_unique<GraphCache>(device, stream);
}

Runner::~Runner() { device_.api().stream_sync(device_.self(), stream_.get(), nullptr); }

void Runner::require_ops() const {
    std::vector<std::int32_t> ops = {ASSAY_OP_RMSNORM, ASSAY_OP_ROPE_TABLE, ASSAY_OP_ROPE,
                                     ASSAY_OP_GATHER_ROWS};
    if (h_.attn_class == ASSAY_ATTN_MLA_DSA) ops.insert(ops.end(), {ASSAY_OP_LAYERNORM, ASSAY_OP_SCALE});
    if (h_.num_experts > 0)
        ops.insert(ops.end(), {ASSAY_OP_ROUTER, ASSAY_OP_EXPERT_SORT, ASSAY_OP_EXPERT_COMBINE});
    for (std::int64_t l = 0; l < h_.num_layers; ++l) {
        const Fused& f = fused_[static_cast<std::size_t>(l)];
        const auto unfused = [&](Role gate, bool is_fused) { return weights_.layer(l, gate) && !is_fused; };
        if (unfused(Role::ffn_gate, f.dense) || unfused(Role::ffn_gate_exps, f.experts) ||
            unfused(Role::ffn_gate_shexp, f.shared))
            ops.push_back(ASSAY_OP_GLU);
        if (weights_.layer(l, Role::post_attention_norm) || weights_.layer(l, Role::post_ffw_norm))
            ops.push_back(ASSAY_OP_ADD);
    }
    if (h_.embedding_scale != 1.0) ops.push_back(ASSAY_OP_SCALE);
    if (h_.final_logit_softcap != 0.0) ops.push_back(ASSAY_OP_SOFTCAP);
    for (const std::int32_t op : ops) {
        assay_error why = sdk::make_error();
        if (device_.ops().supports(device_.self(), op, ASSAY_F32, &why) != ASSAY_OK)
            throw base::ConfigError{"device plugin \"" + device_.id() + "\" lacks an op that " + h_.arch +
                                    " needs (op " + std::to_string(op) + ", f32): " + plugin::words(why)};
    }
}

bool Runner::can_fuse(std::initializer_list<const Weight*> weights, assay_quant_op op, std::int64_t m,
                      std::int32_t glu, bool bias) const {
    const Weight& first = **weights.begin();
    for (const Weight* weight : weights) {
        if (!*weight || weight->quant != first.quant || weight->precision != first.precision) return false;
        assay_quant_query q{};
        q.size = sizeof q;
        q.op = op;
        q.format = weight->abi.format;
        q.x_dtype = q.y_dtype = ASSAY_F32;
        q.num_weights = static_cast<std::int32_t>(weights.size());
        q.glu = glu;
        q.flags = weight->precision;
        q.bias = bias;
        q.m = m;
        q.n = weight->abi.rows;
        q.k = weight->abi.cols;
        q.experts = weight->abi.experts;
        if (!weight->quant->unsupported_reason(q).empty()) return false;
    }
    return true;
}

void Runner::choose_fusions() {
    const std::int64_t T = limits_.max_tokens;
    const std::int64_t slots = T * std::max<std::int64_t>(1, h_.num_experts_per_tok);
    for (std::int64_t l = 0; l < h_.num_layers; ++l) {
        layer_ = l;
        const auto has_bias = [&](Role role) { return bias_of(role) != Role::count && w(bias_of(role)); };
        const auto glu = [&](Role gate, Role up, assay_quant_op op, std::int64_t m) {
            return can_fuse({&w(gate), &w(up)}, op, m, h_.activation, has_bias(gate) || has_bias(up));
        };
        Fused f;
        f.dense = glu(Role::ffn_gate, Role::ffn_up, ASSAY_Q_MATMUL, T);
        f.experts = glu(Role::ffn_gate_exps, Role::ffn_up_exps, ASSAY_Q_GROUPED, slots);
        f.shared = glu(Role::ffn_gate_shexp, Role::ffn_up_shexp, ASSAY_Q_MATMUL, T);
        const bool bias = has_bias(Role::attn_q) || has_bias(Role::attn_k) || has_bias(Role::attn_v);
        f.qkv = can_fuse({&w(Role::attn_q), &w(Role::attn_k), &w(Role::attn_v)}, ASSAY_Q_MATMUL, T, 0, bias);
        const Role query = h_.q_lora_rank > 0 ? Role::attn_q_a : Role::attn_q;
        f.a = can_fuse({&w(query), &w(Role::attn_kv_a)}, ASSAY_Q_MATMUL, T, 0);
        f.index = can_fuse({&w(Role::index_k), &w(Role::index_weights)}, ASSAY_Q_MATMUL, T, 0);
        fused_.push_back(f);
    }
}

std::string Runner::fusion_text() const {
    std::size_t pairs = 0, fused = 0;
    for (std::int64_t l = 0; l < h_.num_layers; ++l) {
        const Fused& f = fused_[static_cast<std::size_t>(l)];
        const auto count = [&](Role role, bool is_fused) {
            if (!weights_.layer(l, role)) return;
            ++pairs;
            fused += is_fused ? 1 : 0;
        };
        count(Role::ffn_gate, f.dense);
        count(Role::ffn_gate_exps, f.experts);
        count(Role::ffn_gate_shexp, f.shared);
    }
    return "gate/up with activation fused: " + std::to_string(fused) + " of " + std::to_string(pairs);
}

std::uint64_t Runner::workspace_bytes() const { return b_->total_bytes; }

/// The choice between long and short holds for the life of the cache, whatever a sequence's length.
const std::vector<float>& Runner::rope_factors(const RopeParams& rope) const {
    static const std::vector<float> kNone;
    const RopeFactors& factors = weights_.rope_factors();
    if (!rope.use_factors) return kNone;
    if (!factors.always.empty()) return factors.always;
    return limits_.max_kv_len > rope.original_context ? factors.of_long_context : factors.of_short_context;
}

void Runner::allocate() {
    Buffers& b = *b_;
    const auto T = static_cast<std::uint64_t>(limits_.max_tokens);
    const auto n = static_cast<std::uint64_t>(limits_.max_logit_rows);
    const auto dim = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const auto bytes = [&](std::uint64_t size) {
        b.total_bytes += size;
        return device_.alloc(size);
    };
    const auto f32 = [&](std::uint64_t count) { return bytes(count * sizeof(float)); };
    const auto i32 = [&](std::uint64_t count) { return bytes(count * sizeof(std::int32_t)); };

    const auto seqs = static_cast<std::size_t>(limits_.max_seqs);
    const std::int64_t block_size = cache_.block_size();
    const auto blocks = static_cast<std::size_t>((limits_.max_kv_len + block_size - 1) / block_size);
    auto& at = b.at;
    at.tokens = 0;
    at.positions = at.tokens + T;
    at.slots = at.positions + T;
    at.cu_q = at.slots + T;
    at.kv_len = at.cu_q + seqs + 1;
    at.logit_rows = at.kv_len + seqs;
    at.block_table = at.logit_rows + n;  // last: a step copies no more of it than it uses
    at.total = at.block_table + seqs * blocks;
    b.staging = device_.alloc(at.total * 4, ASSAY_SPACE_PINNED);
    b.inputs = i32(at.total);

    b.x = f32(T * dim(h_.hidden_size));
    b.u = f32(T * dim(h_.hidden_size));
    b.block = f32(T * dim(h_.hidden_size));
    b.q = f32(T * dim(h_.num_q_heads * h_.head_dim));
    b.o = f32(T * dim(h_.num_q_heads * h_.v_head_dim));
    if (h_.attn_class == ASSAY_ATTN_GQA) {
        b.k = f32(T * dim(h_.num_kv_heads * h_.head_dim));
        b.v = f32(T * dim(h_.num_kv_heads * h_.v_head_dim));
    } else {
        const std::int64_t width = h_.kv_lora_rank + h_.qk_rope_head_dim;
        b.qr = f32(T * dim(h_.q_lora_rank));
        b.latent = f32(T * dim(width));
        b.q_absorbed = f32(T * dim(h_.num_q_heads * width));
        b.z = f32(T * dim(h_.num_q_heads * h_.kv_lora_rank));
    }
    if (h_.attn_class == ASSAY_ATTN_MLA_DSA) {
        b.index_q = f32(T * dim(h_.index_n_heads * h_.index_head_dim));
        b.index_k = f32(T * dim(h_.index_head_dim));
        b.index_w = f32(T * dim(h_.index_n_heads));
        b.topk = i32(T * dim(h_.index_topk));
    }
    for (const RopeParams& rope : h_.ropes) {
        const auto inv = inverse_frequencies(rope, rope_factors(rope));
        plugin::Buffer& freq = b.inv_freq.emplace_back(bytes(inv.size() * sizeof(double)));
        device_.copy(freq.data(), inv.data(), freq.bytes(), stream_);
        stream_.sync();
        b.cos_sin.push_back(f32(T * dim(rope.n_rot)));
    }

    const std::uint64_t S = T * dim(std::max<std::int64_t>(1, h_.num_experts_per_tok));
    const std::uint64_t wide = std::max({T * dim(h_.intermediate_size), S * dim(h_.moe_intermediate_size),
                                         T * dim(h_.moe_intermediate_size * h_.num_shared_experts)});
    b.ffn_h = f32(wide);
    b.ffn_gate = f32(wide);
    b.ffn_up = f32(wide);
    if (h_.num_experts > 0) {
        b.router_logits = f32(T * dim(h_.num_experts));
        b.expert_ids = i32(S);
        b.expert_weights = f32(S);
        b.slot_of = i32(S);
        b.row_ids = i32(S);
        b.expert_offset = i32(dim(h_.num_experts) + 1);
        b.expert_y = f32(S * dim(h_.hidden_size));
    }
    b.head_x = f32(n * dim(h_.hidden_size));
    b.logits = f32(n * dim(h_.vocab_size));
}

void Runner::size_workspaces() {
    const std::int64_t T = limits_.max_tokens;
    const std::int64_t slots = T * std::max<std::int64_t>(1, h_.num_experts_per_tok);
    std::uint64_t bytes = 0;
    const auto matmul = [&](std::initializer_list<const Weight*> weights, std::int64_t m) {
        grow(bytes, ASSAY_Q_MATMUL, weights, m);
    };
    for (std::int64_t l = 0; l < h_.num_layers; ++l) {
        layer_ = l;
        if (fused().qkv) matmul({&w(Role::attn_q), &w(Role::attn_k), &w(Role::attn_v)}, T);
        if (fused().a) matmul({&w(h_.q_lora_rank > 0 ? Role::attn_q_a : Role::attn_q), &w(Role::attn_kv_a)}, T);
        if (fused().index) matmul({&w(Role::index_k), &w(Role::index_weights)}, T);
        if (fused().dense) matmul({&w(Role::ffn_gate), &w(Role::ffn_up)}, T);
        if (fused().shared) matmul({&w(Role::ffn_gate_shexp), &w(Role::ffn_up_shexp)}, T);
        if (fused().experts) grow(bytes, ASSAY_Q_GROUPED, {&w(Role::ffn_gate_exps), &w(Role::ffn_up_exps)}, slots);
        for (const Role role : {Role::ffn_gate_exps, Role::ffn_up_exps, Role::ffn_down_exps})
            grow(bytes, ASSAY_Q_GROUPED, {&w(role)}, slots);
        for (const Role role : {Role::attn_k_b, Role::attn_v_b}) grow(bytes, ASSAY_Q_BATCHED, {&w(role)}, T);
        for (const Role role :
             {Role::attn_q, Role::attn_k, Role::attn_v, Role::attn_q_a, Role::attn_kv_a, Role::attn_q_b,
              Role::attn_output, Role::index_q_b, Role::index_k, Role::index_weights, Role::router,
              Role::ffn_gate, Role::ffn_up, Role::ffn_down, Role::ffn_gate_shexp, Role::ffn_up_shexp,
              Role::ffn_down_shexp})
            matmul({&w(role)}, T);
    }
    grow(bytes, ASSAY_Q_MATMUL, {&weights_.whole(Role::output)}, limits_.max_logit_rows);
    b_->quant_workspace = device_.alloc(bytes);

    std::uint64_t attention = 0, plan = 0;
    for (const plugin::Attention* a : {attention_.prefill, attention_.decode}) {
        std::uint64_t plan_bytes = 0, workspace = 0;
        assay_error err = sdk::make_error();
        if (a->api().sizes(a->self(), limits_.max_seqs, limits_.max_tokens, limits_.max_kv_len,
                           &plan_bytes, &workspace, &err) != ASSAY_OK)
            throw base::ConfigError{"attention plugin \"" + a->id() + "\": cannot serve " +
                                    std::to_string(limits_.max_seqs) + " sequences of up to " +
                                    std::to_string(limits_.max_kv_len) + " tokens: " + plugin::words(err)};
        attention = std::max(attention, workspace);
        plan = std::max(plan, plan_bytes);
    }
    b_->attention_workspace = device_.alloc(attention);
    b_->plan_a = device_.alloc(plan);
    b_->plan_b = device_.alloc(plan);
    attention_workspace_bytes_ = attention;
    b_->total_bytes += bytes + attention + 2 * plan;
}

}  // namespace model
