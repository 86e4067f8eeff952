#include "daemon/model/step_driver.hpp"

#include <algorithm>
#include <numeric>

#include "daemon/base/check.hpp"
#include "daemon/base/error.hpp"

namespace model {

StepDriver::StepDriver(Runner& runner, const KvCache& cache, const plugin::Device& device,
                       const plugin::Stream& stream, std::int32_t num_seqs, std::int32_t max_len)
    : runner_{runner},
      device_{device},
      stream_{stream},
      block_size_{cache.block_size()},
      blocks_per_seq_{(max_len + cache.block_size() - 1) / cache.block_size()},
      lengths_(static_cast<std::size_t>(num_seqs), 0),
      tables_(static_cast<std::size_t>(num_seqs) * static_cast<std::size_t>(blocks_per_seq_)) {
    if (static_cast<std::int64_t>(blocks_per_seq_) * num_seqs > cache.num_blocks())
        throw base::ConfigError{"kv: " + std::to_string(num_seqs) + " sequences of " + std::to_string(max_len) +
                                " tokens need " + std::to_string(blocks_per_seq_ * num_seqs) +
                                " blocks, the cache has " + std::to_string(cache.num_blocks())};
    reset();
}

void StepDriver::reset() {
    std::fill(lengths_.begin(), lengths_.end(), 0);
    std::iota(tables_.begin(), tables_.end(), 0);
}

void StepDriver::share(std::int32_t from, std::int32_t to, std::int32_t num_tokens) {
    CHECK(num_tokens % block_size_ == 0 && num_tokens <= lengths_[static_cast<std::size_t>(from)]);
    std::copy_n(table(from), num_tokens / block_size_, table(to));
    lengths_[static_cast<std::size_t>(to)] = num_tokens;
}

void StepDriver::add(std::int32_t sequence, const std::vector<std::int32_t>& tokens, Rows rows) {
    std::int32_t& length = lengths_[static_cast<std::size_t>(sequence)];
    const std::int32_t* blocks = table(sequence);
    for (const std::int32_t token : tokens) {
        plan_.tokens.push_back(token);
        plan_.positions.push_back(length);
        plan_.slots.push_back(blocks[length / block_size_] * block_size_ + length % block_size_);
        if (rows == Rows::all) plan_.logit_rows.push_back(plan_.num_tokens() - 1);
        ++length;
    }
    if (rows == Rows::last) plan_.logit_rows.push_back(plan_.num_tokens() - 1);
    plan_.cu_q.push_back(plan_.num_tokens());
    plan_.kv_len.push_back(length);
    plan_.block_table.insert(plan_.block_table.end(), blocks, blocks + blocks_per_seq_);
}

void StepDriver::step(std::span<const std::vector<std::int32_t>> tokens, bool all_logits) {
    run(tokens, all_logits ? Rows::all : Rows::last, {});
}

void StepDriver::step(std::span<const std::vector<std::int32_t>> tokens, std::span<const std::int32_t> logit_rows) {
    run(tokens, Rows::chosen, logit_rows);
}

void StepDriver::run(std::span<const std::vector<std::int32_t>> tokens, Rows rows, std::span<const std::int32_t> chosen) {
    plan_.clear();
    ++plan_.step;
    plan_.max_blocks = blocks_per_seq_;
    // Decodes first, as the scheduler does.
    const std::vector<std::int32_t> before = lengths_;
    for (const bool decoding : {true, false}) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const bool is_decode = tokens[i].size() == 1 && before[i] > 0;
            if (!tokens[i].empty() && is_decode == decoding) add(static_cast<std::int32_t>(i), tokens[i], rows);
        }
        if (decoding) plan_.num_decode_seqs = plan_.num_seqs();
    }
    if (rows == Rows::chosen) plan_.logit_rows.assign(chosen.begin(), chosen.end());
    if (!runner_.run(plan_)) throw base::AssayError{runner_.failure()};
    stream_.sync();
}

const std::vector<float>& StepDriver::logits() {
    const assay_tensor rows = runner_.logits();
    logits_.resize(static_cast<std::size_t>(rows.shape[0] * rows.shape[1]));
    device_.copy(logits_.data(), rows.data, logits_.size() * sizeof(float), stream_);
    stream_.sync();
    return logits_;
}

}  // namespace model
