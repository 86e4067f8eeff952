#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/app/stack.hpp"
#include "daemon/model/step_plan.hpp"

namespace app {

/// Runs chosen tokens of a few sequences through a stack, without scheduler or sampling: what
/// `assayctl logits` and `assayctl bench` need. Sequence i owns the i-th share of the cache.
class StepDriver {
public:
    /// Throws base::ConfigError when the cache cannot hold num_seqs sequences of max_len tokens.
    StepDriver(Stack& stack, std::int32_t num_seqs, std::int32_t max_len);

    /// Forgets what is cached.
    void reset();
    /// One step: `tokens[i]` continue sequence i (empty: it sits out). Logits of every row when
    /// `all_logits`, else of the last row of each sequence that takes part.
    /// Throws base::AssayError with what failed.
    void step(std::span<const std::vector<std::int32_t>> tokens, bool all_logits);
    /// Rows of the last step, on the host: [rows, vocab_size].
    [[nodiscard]] const std::vector<float>& logits();
    [[nodiscard]] std::int32_t length(std::int32_t sequence) const {
        return lengths_[static_cast<std::size_t>(sequence)];
    }

private:
    void add(std::int32_t sequence, const std::vector<std::int32_t>& tokens, bool all_logits);

    Stack& stack_;
    std::int32_t blocks_per_seq_;
    std::vector<std::int32_t> lengths_;
    model::StepPlan plan_;
    std::vector<float> logits_;
};

}  // namespace app
