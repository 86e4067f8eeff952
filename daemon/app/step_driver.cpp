#include "daemon/app/step_driver.hpp"

#include <algorithm>

#include "daemon/base/error.hpp"

namespace app {

StepDriver::StepDriver(Stack& stack, std::int32_t num_seqs, std::int32_t max_len)
    : stack_{stack}, lengths_(static_cast<std::size_t>(num_seqs), 0) {
    const std::int32_t block_size = stack.cache->block_size();
    blocks_per_seq_ = (max_len + block_size - 1) / block_size;
    if (static_cast<std::int64_t>(blocks_per_seq_) * num_seqs > stack.cache->num_blocks())
        throw base::ConfigError{"kv: " + std::to_string(num_seqs) + " sequences of " + std::to_string(max_len) +
                                " tokens need " + std::to_string(blocks_per_seq_ * num_seqs) +
                                " blocks, the cache has " + std::to_string(stack.cache->num_blocks())};
}

void StepDriver::reset() { std::fill(lengths_.begin(), lengths_.end(), 0); }

void StepDriver::add(std::int32_t sequence, const std::vector<std::int32_t>& tokens, bool all_logits) {
    const std::int32_t block_size = stack_.cache->block_size();
    std::int32_t& length = lengths_[static_cast<std::size_t>(sequence)];
    for (const std::int32_t token : tokens) {
        plan_.tokens.push_back(token);
        plan_.positions.push_back(length);
        plan_.slots.push_back((sequence * blocks_per_seq_ + length / block_size) * block_size +
                              length % block_size);
        if (all_logits) plan_.logit_rows.push_back(plan_.num_tokens() - 1);
        ++length;
    }
    if (!all_logits) plan_.logit_rows.push_back(plan_.num_tokens() - 1);
    plan_.cu_q.push_back(plan_.num_tokens());
    plan_.kv_len.push_back(length);
    for (std::int32_t b = 0; b < blocks_per_seq_; ++b)
        plan_.block_table.push_back(sequence * blocks_per_seq_ + b);
}

void StepDriver::step(std::span<const std::vector<std::int32_t>> tokens, bool all_logits) {
    plan_.clear();
    ++plan_.step;
    plan_.max_blocks = blocks_per_seq_;
    // Decodes first, as the scheduler does.
    const std::vector<std::int32_t> before = lengths_;
    for (const bool decoding : {true, false}) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const bool is_decode = tokens[i].size() == 1 && before[i] > 0;
            if (!tokens[i].empty() && is_decode == decoding)
                add(static_cast<std::int32_t>(i), tokens[i], all_logits);
        }
        if (decoding) plan_.num_decode_seqs = plan_.num_seqs();
    }
    if (!stack_.runner->run(plan_)) throw base::AssayError{stack_.runner->failure()};
    stack_.stream->sync();
}

const std::vector<float>& StepDriver::logits() {
    const assay_tensor rows = stack_.runner->logits();
    logits_.resize(static_cast<std::size_t>(rows.shape[0] * rows.shape[1]));
    const plugin::Device& device = *stack_.resolution.device;
    device.copy(logits_.data(), rows.data, logits_.size() * sizeof(float), *stack_.stream);
    stack_.stream->sync();
    return logits_;
}

}  // namespace app
