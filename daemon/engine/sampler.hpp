#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "abi/plugin.h"
#include "daemon/base/request.hpp"
#include "daemon/engine/scheduler.hpp"
#include "daemon/model/event.hpp"
#include "daemon/plugin/instance.hpp"

namespace engine {

/// A uniform number in [0, 1) for one position of one request: the same for the same seed and
/// position, whatever ran beside it, on every device.
[[nodiscard]] float uniform_at(std::uint64_t seed, std::uint64_t position) noexcept;

/// What a step's logits became.
struct Sampled {
    std::int32_t token = -1;                          ///< -1: the sequence does not sample yet
    bool is_broken = false;                           ///< no finite logit: the backend answered garbage
    std::vector<base::TokenLogprobs> logprobs;        ///< of the sampled token: one entry when asked for
    std::vector<base::TokenLogprobs> prompt_logprobs; ///< of the prompt tokens that this chunk predicts
};

/// Turns rows of logits into tokens and log-probabilities, through the device's ops. All buffers are
/// sized once.
///
/// Log-probabilities are those of the model's own distribution: before penalties, bias, masks,
/// temperature and cuts. A mask has the last word on what may be drawn: a token that is banned, or barred
/// as one that ends the text, is drawn after all where the mask leaves no other.
///
/// Thread: engine.
class Sampler {
public:
    static constexpr std::int32_t kMaxTop = 20;  ///< alternatives per position
    /// Edits that one call of the device takes; more are given in several.
    static constexpr std::size_t kMaxEdits = 1U << 16U;

    /// @param max_rows  rows of logits in one step; at least max_seqs
    /// Throws base::ConfigError when the device lacks an op that sampling needs.
    Sampler(const plugin::Device& device, const plugin::Stream& stream, std::int32_t max_seqs,
            std::int32_t max_rows, std::int32_t vocab_size);

    /// Samples for every sequence of the step whose rows are complete.
    /// @param logits  [rows, vocab] device memory; left as it is
    /// @param out     [sequences.size()]
    /// @return false when the device failed; failure() then says how
    [[nodiscard]] bool run(const assay_tensor& logits, std::span<Sequence* const> sequences,
                           std::span<const Scheduler::Rows> rows, std::vector<Sampled>& out);
    [[nodiscard]] const std::string& failure() const { return failure_; }

private:
    /// One log-probability to be found: row of logits, token, for which sequence.
    struct Score {
        std::int32_t row = 0;
        std::int32_t token = -1;
        std::int32_t sequence = 0;
        bool is_prompt = false;
    };
    void require_ops() const;
    void collect_edits(const Sequence& sequence, std::int32_t row);
    void collect_mask(const Sequence& sequence);
    void collect_prompt_scores(const Sequence& sequence, const Scheduler::Rows& rows, std::int32_t index);
    [[nodiscard]] bool save_scored_rows(const assay_tensor& logits);
    [[nodiscard]] bool edit(const assay_tensor& rows);
    [[nodiscard]] bool mask(const assay_tensor& rows);
    [[nodiscard]] bool sample(const assay_tensor& logits);
    [[nodiscard]] bool score(std::vector<Sampled>& out, std::span<Sequence* const> sequences);
    [[nodiscard]] bool to_device(plugin::Buffer& dst, const void* src, std::uint64_t bytes);
    [[nodiscard]] bool to_host(void* dst, const plugin::Buffer& src, std::uint64_t bytes);
    [[nodiscard]] bool check(const char* op, assay_status status);

    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::int32_t vocab_size_;
    model::Event done_;

    plugin::Buffer edits_buf_, rows_buf_, tokens_buf_, sampled_logits_, row_ids_buf_;
    plugin::Buffer masks_buf_, mask_rows_buf_;
    plugin::Buffer scored_logits_, score_tokens_buf_, logprob_buf_, top_ids_buf_, top_logprobs_buf_;

    std::vector<assay_logit_edit> edits_;
    std::vector<assay_sample_row> sample_rows_;
    std::vector<std::uint32_t> masks_;            // [num_masks, (vocab + 31) / 32] of this step
    std::vector<std::int32_t> mask_rows_;         // of each sampled row, -1 = none
    std::vector<std::int32_t> row_ids_, sampled_tokens_;
    std::vector<std::int32_t> sampled_sequence_;  // sequence index of each sampled row
    std::vector<std::int32_t> sampled_rows_;      // its row of logits
    std::vector<Score> scores_;
    std::vector<std::int32_t> edit_index_;        // [vocab]; -1 between calls
    std::vector<bool> was_generated_;             // per edit
    std::vector<float> logprobs_, top_logprobs_;
    std::vector<std::int32_t> top_ids_, score_ids_;
    std::string failure_;
};

}  // namespace engine
