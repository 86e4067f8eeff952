#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/event.hpp"
#include "daemon/model/graph_cache.hpp"
#include "daemon/model/hparams.hpp"
#include "daemon/model/kv_cache.hpp"
#include "daemon/model/launcher.hpp"
#include "daemon/model/step_plan.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// The largest step that will be asked for; buffers and workspaces are sized once by it.
struct RunnerLimits {
    std::int32_t max_seqs = 1;
    std::int32_t max_tokens = 1;      ///< tokens in one step
    std::int32_t max_logit_rows = 1;  ///< rows of logits in one step
    std::int32_t max_kv_len = 1;      ///< tokens of one sequence
    bool capture_graphs = true;       ///< decode steps run as recorded graphs where the device has them
};

/// Who computes attention. One object for both phases, or two whose layouts are equal.
struct AttentionBackends {
    const plugin::Attention* prefill = nullptr;
    const plugin::Attention* decode = nullptr;
    bool mixed = false;  ///< both phases of a step may go in one call (then prefill == decode)
};

/// The transformer program: one step plan in, logits out. Knows the order of ops and nothing of
/// arithmetic; every op is a call of a plugin. Deals with every architecture through Hparams and the
/// presence of weights.
///
/// Everything that it is given must outlive it. Thread: engine (construction: control). run()
/// allocates nothing, except where it records a graph.
class Runner {
public:
    /// Throws base::ConfigError when the device lacks an op that the model needs, or its memory
    /// does not suffice.
    Runner(const Hparams& hparams, const Weights& weights, const plugin::Device& device,
           const AttentionBackends& attention, const KvCache& cache, const plugin::Stream& stream,
           const RunnerLimits& limits);
    ~Runner();
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    /// Queues one step. False when a backend failed; failure() then says where.
    [[nodiscard]] bool run(const StepPlan& plan);
    [[nodiscard]] const std::string& failure() const { return launcher_.failure(); }

    /// [plan.logit_rows.size(), vocab_size] f32 of the last step, device memory.
    [[nodiscard]] assay_tensor logits() const;

    void set_tap(Tap* tap) { launcher_.set_tap(tap); }
    /// Every call of the following steps goes through `interceptor`; null: to the backends themselves.
    void set_interceptor(Interceptor* interceptor) { launcher_.set_interceptor(interceptor); }
    [[nodiscard]] const RunnerLimits& limits() const { return limits_; }
    /// Device memory for activations and workspaces.
    [[nodiscard]] std::uint64_t workspace_bytes() const;
    /// Which fused forms run: "gate/up: fused in 6 of 6 layers"; for the printed plan.
    [[nodiscard]] std::string fusion_text() const;
    /// Decode steps that run as graphs by now; 0 where they run op by op.
    [[nodiscard]] std::size_t num_graphs() const { return graphs_ ? graphs_->num_recorded() : 0; }

private:
    struct Buffers;
    /// Sequences that one attention call serves.
    struct Part {
        const plugin::Attention* plugin = nullptr;
        assay_phase phase = ASSAY_MIXED;
        assay_attn_batch batch{};
        void* plan = nullptr;
    };
    /// What runs in one call in a layer, because one plugin says that it can.
    struct Fused {
        bool dense = false, experts = false, shared = false;  ///< gate, up and their activation
        bool qkv = false, a = false, index = false;  ///< products of one input: Q, K, V; q_a (or q), kv_a; indexer
    };

    // runner_setup.cpp
    void allocate();
    void size_workspaces();
    void choose_fusions();
    void require_ops() const;
    [[nodiscard]] bool can_fuse(std::initializer_list<const Weight*> weights, assay_quant_op op,
                                std::int64_t m, std::int32_t glu, bool bias = false) const;
    [[nodiscard]] const std::vector<float>& rope_factors(const RopeParams& rope) const;

    // runner.cpp
    void choose_shape(const StepPlan& plan);
    void upload(const StepPlan& plan);
    void upload_block_table(const StepPlan& plan);
    void issue(std::int64_t num_tokens);
    void make_parts(const StepPlan& plan);
    [[nodiscard]] Part make_part(const StepPlan& plan, std::int32_t first, std::int32_t last,
                                 const plugin::Attention& plugin, assay_phase phase, void* storage);
    void embed(std::int64_t num_tokens);
    void rope_tables(std::int64_t num_tokens);
    void head(std::int64_t num_tokens);
    [[nodiscard]] const Fused& fused() const { return fused_[static_cast<std::size_t>(layer_)]; }
    [[nodiscard]] const Weight& w(Role role) const { return weights_.layer(layer_, role); }
    void rmsnorm(const char* name, const assay_tensor& x, const Weight& weight, const assay_tensor& out);
    /// Where the last product of a block goes: the residual stream itself, or, where the architecture
    /// has a norm after the block, a buffer that add_block() normalises and adds.
    [[nodiscard]] assay_tensor block_output(const Weight& post_norm, std::int64_t num_tokens) const;
    [[nodiscard]] std::uint32_t block_flags(const Weight& post_norm) const;
    void add_block(const char* name, const Weight& post_norm, std::int64_t num_tokens);

    // attention_block.cpp
    void attention_gqa(std::int64_t num_tokens);
    void attention_mla(std::int64_t num_tokens);
    void index_prologue(std::int64_t num_tokens);
    void attend(const assay_tensor& q, const assay_tensor& k, const assay_tensor& v,
                const assay_tensor& out);
    void rope(const char* name, const assay_tensor& x, const assay_tensor& out, std::int32_t style);

    // feed_forward.cpp
    /// The gated unit of these weights with `width` columns in each row of `rows`.
    [[nodiscard]] Launcher::Gated gated(Role gate, Role up, bool fused, std::int64_t rows, std::int64_t width) const;
    void dense_ffn(std::int64_t num_tokens);
    void moe_ffn(std::int64_t num_tokens);

    const Hparams& h_;
    const Weights& weights_;
    const plugin::Device& device_;
    AttentionBackends attention_;
    const KvCache& cache_;
    const plugin::Stream& stream_;
    RunnerLimits limits_;
    std::int64_t layer_ = 0;

    std::unique_ptr<Buffers> b_;
    std::vector<Fused> fused_;            // [num_layers]
    std::array<Part, 2> parts_;
    std::size_t num_parts_ = 0;
    std::int64_t num_logit_rows_ = 0;
    /// Of the step: row length of the block table in device memory. Steps that may be recorded have a
    /// power of two, so that few graphs serve many lengths.
    std::int32_t max_blocks_ = 0;
    bool is_recordable_ = false;
    std::uint64_t attention_workspace_bytes_ = 0;
    Launcher launcher_;
    Event inputs_read_;  // the device has copied the staging area
    std::unique_ptr<GraphCache> graphs_;  // null: op by op. Last: a graph dies before what it uses
};

}  // namespace model
