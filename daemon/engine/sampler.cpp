#include "daemon/engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cxx/plugin.hpp"
#include "daemon/base/check.hpp"
#include "daemon/plugin/boundary.hpp"

namespace engine {

namespace {

/// What the least wanted of the allowed tokens of a masked row still has added to its logit.
constexpr float kLeastWanted = -1e9F;

}  // namespace

float uniform_at(std::uint64_t seed, std::uint64_t position) noexcept {
    // SplitMix64's finaliser over a counter: Steele, Lea, Flood, "Fast splittable pseudorandom
    // number generators", 2014.
    std::uint64_t z = seed + (position + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    z ^= z >> 31U;
    return static_cast<float>(z >> 40U) * 0x1p-24F;
}

Sampler::Sampler(const plugin::Device& device, const plugin::Stream& stream, std::int32_t max_seqs,
                 std::int32_t max_rows, std::int32_t vocab_size)
    : device_{device},
      stream_{stream},
      vocab_size_{vocab_size},
      done_{device, stream} {
    CHECK(max_rows >= max_seqs);
    require_ops();
    const auto seqs = static_cast<std::uint64_t>(max_seqs), rows = static_cast<std::uint64_t>(max_rows);
    const auto vocab = static_cast<std::uint64_t>(vocab_size);
    edits_buf_ = device.alloc(kMaxEdits * sizeof(assay_logit_edit));
    rows_buf_ = device.alloc(seqs * sizeof(assay_sample_row));
    tokens_buf_ = device.alloc(seqs * 4);
    row_ids_buf_ = device.alloc(rows * 4);
    sampled_logits_ = device.alloc(seqs * vocab * 4);
    masks_buf_ = device.alloc(seqs * ((vocab + 31) / 32) * 4);
    mask_rows_buf_ = device.alloc(seqs * 4);
    masks_.reserve(seqs * ((vocab + 31) / 32));
    mask_rows_.reserve(seqs);
    scored_logits_ = device.alloc(rows * vocab * 4);
    score_tokens_buf_ = device.alloc(rows * 4);
    logprob_buf_ = device.alloc(rows * 4);
    top_ids_buf_ = device.alloc(rows * kMaxTop * 4);
    top_logprobs_buf_ = device.alloc(rows * kMaxTop * 4);
    sample_rows_.reserve(seqs);
    row_ids_.reserve(rows);
    sampled_tokens_.resize(seqs);
    sampled_sequence_.reserve(seqs);
    sampled_rows_.reserve(seqs);
    scores_.reserve(rows);
    score_ids_.reserve(rows);
    edits_.reserve(kMaxEdits);
    was_generated_.reserve(kMaxEdits);
    edit_index_.resize(vocab, -1);
    logprobs_.resize(rows);
    top_ids_.resize(rows * kMaxTop);
    top_logprobs_.resize(rows * kMaxTop);
}

void Sampler::require_ops() const {
    for (const std::int32_t op :
         {ASSAY_OP_GATHER_ROWS, ASSAY_OP_LOGITS_EDIT, ASSAY_OP_LOGITS_MASK, ASSAY_OP_LOGPROBS, ASSAY_OP_SAMPLE}) {
        assay_error why = sdk::make_error();
        if (device_.ops().supports(device_.self(), op, ASSAY_F32, &why) != ASSAY_OK)
            throw base::ConfigError{"device plugin \"" + device_.id() + "\" lacks an op that sampling needs (op " +
                                    std::to_string(op) + ", f32): " + plugin::words(why)};
    }
}

bool Sampler::check(const char* op, assay_status status) {
    if (status == ASSAY_OK) return true;
    failure_ = std::string{op} + ", plugin \"" + device_.id() + "\": status " + std::to_string(status);
    return false;
}

bool Sampler::to_device(plugin::Buffer& dst, const void* src, std::uint64_t bytes) {
    return check("copy to device", device_.api().copy(device_.self(), dst.data(), src, bytes, stream_.get()));
}

bool Sampler::to_host(void* dst, const plugin::Buffer& src, std::uint64_t bytes) {
    if (!check("copy to host", device_.api().copy(device_.self(), dst, src.data(), bytes, stream_.get())))
        return false;
    return check("record", done_.record()) && check("wait", done_.wait());
}

void Sampler::collect_edits(const Sequence& s, std::int32_t row) {
    const base::Sampling& p = s.request.sampling;
    const bool barred = s.num_generated() < s.request.min_tokens && !s.request.stop_tokens.empty();
    const bool penalised = p.presence_penalty != 0.0F || p.frequency_penalty != 0.0F ||
                           p.repetition_penalty != 1.0F;
    if (!penalised && !barred && p.logit_bias.empty()) return;

    const auto is_token = [&](std::int32_t token) { return token >= 0 && token < vocab_size_; };
    // At most one edit per token: penalties, bias and bar are added up.
    const auto edit_of = [&](std::int32_t token) -> assay_logit_edit& {
        std::int32_t& index = edit_index_[static_cast<std::size_t>(token)];
        if (index < 0) {
            index = static_cast<std::int32_t>(edits_.size());
            edits_.push_back({row, token, 1.0F, 0.0F});
            was_generated_.push_back(false);
        }
        return edits_[static_cast<std::size_t>(index)];
    };
    const std::size_t first = edits_.size();
    was_generated_.resize(first);
    if (penalised) {
        const std::int32_t from = p.repetition_penalty != 1.0F ? 0 : s.prompt_tokens();
        for (std::int32_t i = from; i < s.num_tokens(); ++i) {
            const std::int32_t token = s.tokens[static_cast<std::size_t>(i)];
            if (!is_token(token)) continue;
            assay_logit_edit& edit = edit_of(token);
            edit.repetition = p.repetition_penalty;
            if (i < s.prompt_tokens()) continue;
            const auto index = static_cast<std::size_t>(&edit - edits_.data());
            if (!was_generated_[index]) edit.add -= p.presence_penalty;
            was_generated_[index] = true;
            edit.add -= p.frequency_penalty;
        }
    }
    for (const auto& [token, bias] : p.logit_bias)
        if (is_token(token)) edit_of(token).add += bias;
    if (barred)
        for (const std::int32_t token : s.request.stop_tokens)
            if (is_token(token)) edit_of(token).add = -std::numeric_limits<float>::infinity();
    if (s.constraint)
        for (std::size_t i = first; i < edits_.size(); ++i)
            edits_[i].add = std::max(edits_[i].add, kLeastWanted);
    for (std::size_t i = first; i < edits_.size(); ++i)
        edit_index_[static_cast<std::size_t>(edits_[i].token)] = -1;
}

void Sampler::collect_mask(const Sequence& s) {
    if (!s.constraint) return mask_rows_.push_back(-1);
    const std::size_t words = (static_cast<std::size_t>(vocab_size_) + 31) / 32;
    mask_rows_.push_back(static_cast<std::int32_t>(masks_.size() / words));
    masks_.resize(masks_.size() + words);
    s.constraint->allow(std::span{masks_}.last(words));
}

void Sampler::collect_prompt_scores(const Sequence& s, const Scheduler::Rows& rows, std::int32_t index) {
    // The row at prompt position p predicts token p + 1; num_computed is still that before the step.
    if (!s.request.prompt_logprobs || s.num_generated() > 0) return;
    for (std::int32_t i = 0; i < rows.count; ++i) {
        const std::int32_t next = s.num_computed + i + 1;
        if (next < s.prompt_tokens())
            scores_.push_back({rows.first + i, s.tokens[static_cast<std::size_t>(next)], index, true});
    }
}

bool Sampler::save_scored_rows(const assay_tensor& logits) {
    if (scores_.empty()) return true;
    row_ids_.clear();
    for (const Score& score : scores_) row_ids_.push_back(score.row);
    if (!to_device(row_ids_buf_, row_ids_.data(), row_ids_.size() * 4)) return false;
    const assay_tensor out =
        sdk::make_tensor(scored_logits_.data(), ASSAY_F32, row_ids_.size(), vocab_size_);
    return check("gather rows", device_.ops().gather_rows(device_.self(), &logits,
                                                          row_ids_buf_.as<std::int32_t>(), &out, stream_.get()));
}

bool Sampler::edit(const assay_tensor& rows) {
    for (std::size_t first = 0; first < edits_.size(); first += kMaxEdits) {
        const std::size_t n = std::min(kMaxEdits, edits_.size() - first);
        if (!to_device(edits_buf_, edits_.data() + first, n * sizeof(assay_logit_edit)) ||
            !check("logits edit", device_.ops().logits_edit(device_.self(), &rows, edits_buf_.as<assay_logit_edit>(),
                                                            static_cast<std::int64_t>(n), stream_.get())))
            return false;
    }
    return true;
}

bool Sampler::mask(const assay_tensor& rows) {
    if (masks_.empty()) return true;
    const std::int64_t words = (vocab_size_ + 31) / 32;
    return to_device(masks_buf_, masks_.data(), masks_.size() * 4) &&
           to_device(mask_rows_buf_, mask_rows_.data(), mask_rows_.size() * 4) &&
           check("logits mask",
                 device_.ops().logits_mask(device_.self(), &rows, masks_buf_.as<std::uint32_t>(), words,
                                           mask_rows_buf_.as<std::int32_t>(), stream_.get()));
}

bool Sampler::sample(const assay_tensor& logits) {
    const std::size_t n = sample_rows_.size();
    if (n == 0) return true;
    const assay_tensor rows = sdk::make_tensor(sampled_logits_.data(), ASSAY_F32, n, vocab_size_);
    const assay_ops& ops = device_.ops();
    void* self = device_.self();
    const assay_stream* s = stream_.get();
    if (!to_device(row_ids_buf_, sampled_rows_.data(), n * 4) ||
        !check("gather rows", ops.gather_rows(self, &logits, row_ids_buf_.as<std::int32_t>(), &rows, s)))
        return false;
    if (!edit(rows) || !mask(rows)) return false;
    return to_device(rows_buf_, sample_rows_.data(), n * sizeof(assay_sample_row)) &&
           check("sample", ops.sample(self, &rows, rows_buf_.as<assay_sample_row>(),
                                      tokens_buf_.as<std::int32_t>(), s)) &&
           to_host(sampled_tokens_.data(), tokens_buf_, n * 4);
}

bool Sampler::score(std::vector<Sampled>& out, std::span<Sequence* const> sequences) {
    if (scores_.empty()) return true;
    std::int32_t top = 0;
    score_ids_.clear();
    for (Score& score : scores_) {
        const auto i = static_cast<std::size_t>(score.sequence);
        if (!score.is_prompt) score.token = std::max(0, out[i].token);
        score_ids_.push_back(score.token);
        top = std::max(top, std::min(sequences[i]->request.num_logprobs, kMaxTop));
    }
    const std::size_t n = scores_.size();
    const assay_tensor logits = sdk::make_tensor(scored_logits_.data(), ASSAY_F32, n, vocab_size_);
    const auto num_top = static_cast<std::size_t>(top);
    if (!to_device(score_tokens_buf_, score_ids_.data(), n * 4) ||
        !check("logprobs", device_.ops().logprobs(device_.self(), &logits, score_tokens_buf_.as<std::int32_t>(),
                                                  logprob_buf_.as<float>(), top,
                                                  top_ids_buf_.as<std::int32_t>(),
                                                  top_logprobs_buf_.as<float>(), stream_.get())) ||
        !to_host(logprobs_.data(), logprob_buf_, n * 4))
        return false;
    if (top > 0 && (!to_host(top_ids_.data(), top_ids_buf_, n * num_top * 4) ||
                    !to_host(top_logprobs_.data(), top_logprobs_buf_, n * num_top * 4)))
        return false;
    for (std::size_t r = 0; r < n; ++r) {
        const auto i = static_cast<std::size_t>(scores_[r].sequence);
        base::TokenLogprobs entry{logprobs_[r], {}};
        const std::int32_t wanted = std::min(sequences[i]->request.num_logprobs, top);
        for (std::int32_t t = 0; t < wanted; ++t) {
            const std::size_t at = r * num_top + static_cast<std::size_t>(t);
            if (top_ids_[at] < 0) break;  // fewer finite logits than asked for
            entry.top.emplace_back(top_ids_[at], top_logprobs_[at]);
        }
        (scores_[r].is_prompt ? out[i].prompt_logprobs : out[i].logprobs).push_back(std::move(entry));
    }
    return true;
}

bool Sampler::run(const assay_tensor& logits, std::span<Sequence* const> sequences,
                  std::span<const Scheduler::Rows> rows, std::vector<Sampled>& out) {
    out.clear();
    out.resize(sequences.size());
    edits_.clear();
    sample_rows_.clear();
    masks_.clear();
    mask_rows_.clear();
    sampled_sequence_.clear();
    sampled_rows_.clear();
    scores_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        const Sequence& s = *sequences[i];
        const auto index = static_cast<std::int32_t>(i);
        collect_prompt_scores(s, rows[i], index);
        if (!rows[i].wants_sample || s.request.max_tokens == 0) continue;
        const auto sampled_row = static_cast<std::int32_t>(sample_rows_.size());
        const std::int32_t logit_row = rows[i].first + rows[i].count - 1;
        collect_edits(s, sampled_row);
        collect_mask(s);
        const base::Sampling& p = s.request.sampling;
        sample_rows_.push_back({p.temperature, p.top_p, p.min_p, p.top_k,
                                uniform_at(p.seed, static_cast<std::uint64_t>(s.num_generated()))});
        sampled_rows_.push_back(logit_row);
        sampled_sequence_.push_back(index);
        if (s.request.num_logprobs >= 0) scores_.push_back({logit_row, -1, index, false});
    }
    if (!save_scored_rows(logits) || !sample(logits)) return false;
    for (std::size_t r = 0; r < sampled_sequence_.size(); ++r) {
        Sampled& s = out[static_cast<std::size_t>(sampled_sequence_[r])];
        s.token = sampled_tokens_[r];
        s.is_broken = s.token < 0 || s.token >= vocab_size_;
    }
    return score(out, sequences);
}

}  // namespace engine
