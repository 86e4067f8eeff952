#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/model/kv_cache.hpp"
#include "daemon/model/runner.hpp"
#include "daemon/model/step_plan.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// Runs chosen tokens of a few sequences through a runner, without scheduler or sampling: what proofs
/// and measurements need. Each sequence owns an equal share of the cache.
class StepDriver {
public:
    /// Throws base::ConfigError when the cache cannot hold num_seqs sequences of max_len tokens.
    StepDriver(Runner& runner, const KvCache& cache, const plugin::Device& device, const plugin::Stream& stream,
               std::int32_t num_seqs, std::int32_t max_len);

    /// Forgets what is cached.
    void reset();
    /// Makes sequence `to` begin with the blocks of the first num_tokens tokens of `from`, a multiple of
    /// the block size; it goes on in blocks of its own.
    void share(std::int32_t from, std::int32_t to, std::int32_t num_tokens);
    /// One step: `tokens[i]` continue sequence i (empty: it sits out). Logits of every row when
    /// `all_logits`, else of the last row of each sequence that takes part.
    /// Throws base::AssayError with what failed.
    void step(std::span<const std::vector<std::int32_t>> tokens, bool all_logits);
    /// The same with logits of chosen rows of the step, ascending; rows are counted over sequences that
    /// decode first, then those that prefill.
    void step(std::span<const std::vector<std::int32_t>> tokens, std::span<const std::int32_t> logit_rows);
    /// Rows of the last step, on the host: [rows, vocab_size].
    [[nodiscard]] const std::vector<float>& logits();
    [[nodiscard]] std::int32_t length(std::int32_t sequence) const {
        return lengths_[static_cast<std::size_t>(sequence)];
    }

private:
    enum class Rows { all, last, chosen };
    void add(std::int32_t sequence, const std::vector<std::int32_t>& tokens, Rows rows);
    void run(std::span<const std::vector<std::int32_t>> tokens, Rows rows, std::span<const std::int32_t> chosen);
    [[nodiscard]] std::int32_t* table(std::int32_t sequence) {
        return tables_.data() + static_cast<std::ptrdiff_t>(sequence) * blocks_per_seq_;
    }

    Runner& runner_;
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::int32_t block_size_, blocks_per_seq_;
    std::vector<std::int32_t> lengths_, tables_;  // [num_seqs], [num_seqs, blocks_per_seq]
    StepPlan plan_;
    std::vector<float> logits_;
};

}  // namespace model
