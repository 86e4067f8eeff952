// Runner: one step from tokens to logits.

#include "daemon/model/runner.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cxx/plugin.hpp"
#include "daemon/base/check.hpp"
#include "daemon/model/runner_buffers.hpp"

namespace model {

bool Runner::run(const StepPlan& plan) {
    CHECK(plan.num_tokens() <= limits_.max_tokens && plan.num_seqs() <= limits_.max_seqs);
    CHECK(static_cast<std::int32_t>(plan.logit_rows.size()) <= limits_.max_logit_rows);
    CHECK(plan.block_table.size() <= b_->at.total - b_->at.block_table);
    for (const std::int32_t length : plan.kv_len) CHECK(length <= limits_.max_kv_len);
    const std::int64_t T = plan.num_tokens();
    launcher_.begin();
    num_logit_rows_ = static_cast<std::int64_t>(plan.logit_rows.size());
    choose_shape(plan);
    upload(plan);
    make_parts(plan);
    if (is_recordable_)
        graphs_->run({plan.num_seqs(), max_blocks_}, launcher_, [&] { issue(T); });
    else
        issue(T);
    return !launcher_.failed();
}

/// A step can be recorded when it is the same for everyone: a token of each sequence, a row of logits of
/// each token, and nobody who looks between the ops.
void Runner::choose_shape(const StepPlan& plan) {
    constexpr unsigned kFewestBlocks = 16;
    max_blocks_ = plan.max_blocks;
    is_recordable_ = graphs_ != nullptr && !launcher_.has_tap() && plan.num_seqs() > 0 &&
                     plan.num_decode_seqs == plan.num_seqs() && plan.num_tokens() == plan.num_seqs() &&
                     num_logit_rows_ == plan.num_tokens();
    if (!is_recordable_) return;
    const std::int32_t block_size = cache_.block_size();
    const std::int32_t most = (limits_.max_kv_len + block_size - 1) / block_size;
    const auto needed = static_cast<unsigned>(std::max(plan.max_blocks, 1));
    max_blocks_ = std::max(plan.max_blocks,
                           std::min(most, static_cast<std::int32_t>(std::bit_ceil(std::max(needed, kFewestBlocks)))));
}

/// Everything between the inputs and the logits.
void Runner::issue(std::int64_t T) {
    embed(T);
    rope_tables(T);
    for (layer_ = 0; layer_ < h_.num_layers; ++layer_) {
        launcher_.set_layer(layer_);
        if (h_.attn_class == ASSAY_ATTN_GQA)
            attention_gqa(T);
        else
            attention_mla(T);
        if (h_.layers[static_cast<std::size_t>(layer_)].is_moe)
            moe_ffn(T);
        else
            dense_ffn(T);
        launcher_.tap("layer_output", sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size));
    }
    launcher_.set_layer(-1);
    head(T);
}

assay_tensor Runner::logits() const {
    return sdk::make_tensor(b_->logits.data(), ASSAY_F32, num_logit_rows_, h_.vocab_size);
}

void Runner::upload(const StepPlan& plan) {
    const Buffers& b = *b_;
    // A step that nobody waited for may still be reading what is overwritten here.
    launcher_.wait("step inputs", inputs_read_);
    if (launcher_.failed()) return;
    const auto put = [&](std::size_t offset, const std::vector<std::int32_t>& values) {
        std::copy(values.begin(), values.end(), b.host_input(offset));
    };
    put(b.at.tokens, plan.tokens);
    put(b.at.positions, plan.positions);
    put(b.at.slots, plan.slots);
    put(b.at.cu_q, plan.cu_q);
    put(b.at.kv_len, plan.kv_len);
    put(b.at.logit_rows, plan.logit_rows);
    upload_block_table(plan);
    const auto entries = static_cast<std::size_t>(plan.num_seqs()) * static_cast<std::size_t>(max_blocks_);
    launcher_.copy_bytes("step inputs", b.inputs.data(), b.staging.data(),
                         (b.at.block_table + entries) * sizeof(std::int32_t));
    launcher_.record("step inputs", inputs_read_);
}

void Runner::upload_block_table(const StepPlan& plan) {
    const auto from = static_cast<std::ptrdiff_t>(plan.max_blocks), to = static_cast<std::ptrdiff_t>(max_blocks_);
    std::int32_t* row = b_->host_input(b_->at.block_table);
    auto values = plan.block_table.begin();
    for (std::int32_t i = 0; i < plan.num_seqs(); ++i, values += from, row += to)
        std::fill(std::copy(values, values + from, row), row + to, -1);
}

Runner::Part Runner::make_part(const StepPlan& plan, std::int32_t first, std::int32_t last,
                               const plugin::Attention& plugin, assay_phase phase, void* storage) {
    const Buffers& b = *b_;
    const auto f = static_cast<std::size_t>(first);
    Part part;
    part.plugin = &plugin;
    part.phase = phase;
    part.plan = storage;
    assay_attn_batch& batch = part.batch;
    batch.size = sizeof batch;
    batch.num_seqs = last - first;
    batch.num_decode_seqs = std::clamp(plan.num_decode_seqs - first, 0, batch.num_seqs);
    batch.num_tokens = plan.cu_q[static_cast<std::size_t>(last)] - plan.cu_q[f];
    for (std::int32_t i = first; i < last; ++i) {
        const auto s = static_cast<std::size_t>(i);
        batch.max_q_len = std::max(batch.max_q_len, plan.cu_q[s + 1] - plan.cu_q[s]);
        batch.max_kv_len = std::max(batch.max_kv_len, plan.kv_len[s]);
    }
    if (is_recordable_)  // a bound for every step that the graph may serve
        batch.max_kv_len = std::min(limits_.max_kv_len, max_blocks_ * cache_.block_size());
    batch.max_blocks = max_blocks_;
    batch.cu_q = b.input(b.at.cu_q) + first;
    batch.kv_len = b.input(b.at.kv_len) + first;
    batch.block_table = b.input(b.at.block_table) + static_cast<std::ptrdiff_t>(first) * max_blocks_;
    batch.slot_map = b.input(b.at.slots);
    batch.host_cu_q = b.host_input(b.at.cu_q) + first;
    batch.host_kv_len = b.host_input(b.at.kv_len) + first;
    return part;
}

void Runner::make_parts(const StepPlan& plan) {
    const std::int32_t seqs = plan.num_seqs(), decodes = plan.num_decode_seqs;
    num_parts_ = 0;
    const auto add = [&](std::int32_t first, std::int32_t last, const plugin::Attention& plugin,
                         assay_phase phase) {
        void* storage = num_parts_ == 0 ? b_->plan_a.data() : b_->plan_b.data();
        parts_[num_parts_++] = make_part(plan, first, last, plugin, phase, storage);
    };
    if (decodes == seqs)
        add(0, seqs, *attention_.decode, ASSAY_DECODE);
    else if (decodes == 0)
        add(0, seqs, *attention_.prefill, ASSAY_PREFILL);
    else if (attention_.mixed)
        add(0, seqs, *attention_.prefill, ASSAY_MIXED);
    else {
        add(0, decodes, *attention_.decode, ASSAY_DECODE);
        add(decodes, seqs, *attention_.prefill, ASSAY_PREFILL);
    }
    for (std::size_t i = 0; i < num_parts_; ++i) {
        const Part& part = parts_[i];
        launcher_.prepare(*part.plugin, part.batch, part.phase, part.plan);
    }
}

void Runner::embed(std::int64_t T) {
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    launcher_.rows("token_embd", weights_.whole(Role::token_embd), b_->input(b_->at.tokens), x);
    if (h_.embedding_scale != 1.0)
        launcher_.op("embedding scale", [&](const assay_ops& ops, void* self, const assay_stream* s) {
            return ops.scale(self, &x, static_cast<float>(h_.embedding_scale), &x, s);
        });
    launcher_.tap("embedding", x);
}

void Runner::rope_tables(std::int64_t T) {
    for (std::size_t r = 0; r < h_.ropes.size(); ++r) {
        const std::int64_t half = h_.ropes[r].n_rot / 2;
        const assay_tensor table = sdk::make_tensor(b_->cos_sin[r].data(), ASSAY_F32, T, 2, half);
        launcher_.op("rope table", [&](const assay_ops& ops, void* self, const assay_stream* s) {
            return ops.rope_table(self, b_->input(b_->at.positions), T, b_->inv_freq[r].as<double>(),
                                  static_cast<std::int32_t>(half),
                                  static_cast<float>(h_.ropes[r].magnitude), &table, s);
        });
    }
}

void Runner::head(std::int64_t T) {
    const std::int64_t n = num_logit_rows_;
    if (n == 0) return;
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor rows = sdk::make_tensor(b_->head_x.data(), ASSAY_F32, n, h_.hidden_size);
    launcher_.op("gather rows", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.gather_rows(self, &x, b_->input(b_->at.logit_rows), &rows, s);
    });
    rmsnorm("output_norm", rows, weights_.whole(Role::output_norm), rows);
    launcher_.tap("final_norm", rows);
    const assay_tensor out = logits();
    launcher_.matmul("output", rows, {{&weights_.whole(Role::output), out, &weights_.whole(Role::output_bias)}});
    if (h_.final_logit_softcap != 0.0)
        launcher_.op("softcap", [&](const assay_ops& ops, void* self, const assay_stream* s) {
            return ops.softcap(self, &out, static_cast<float>(h_.final_logit_softcap), &out, s);
        });
    launcher_.tap("logits", out);
}

void Runner::rmsnorm(const char* name, const assay_tensor& x, const Weight& weight,
                     const assay_tensor& out) {
    const assay_tensor scale = weight.vector();
    launcher_.op(name, [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.rmsnorm(self, &x, nullptr, &scale, static_cast<float>(h_.rms_eps), &out, s);
    });
}

assay_tensor Runner::block_output(const Weight& post_norm, std::int64_t T) const {
    const plugin::Buffer& target = post_norm ? b_->block : b_->x;
    return sdk::make_tensor(target.data(), ASSAY_F32, T, h_.hidden_size);
}

std::uint32_t Runner::block_flags(const Weight& post_norm) const {
    return post_norm ? 0U : ASSAY_MM_ACCUMULATE;
}

void Runner::add_block(const char* name, const Weight& post_norm, std::int64_t T) {
    if (!post_norm) return;
    const assay_tensor x = sdk::make_tensor(b_->x.data(), ASSAY_F32, T, h_.hidden_size);
    const assay_tensor block = sdk::make_tensor(b_->block.data(), ASSAY_F32, T, h_.hidden_size);
    rmsnorm(name, block, post_norm, block);
    launcher_.op("residual", [&](const assay_ops& ops, void* self, const assay_stream* s) {
        return ops.add(self, &x, &block, 1.0F, &x, s);
    });
}

}  // namespace model
