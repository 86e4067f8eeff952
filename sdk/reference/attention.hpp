#pragma once

// Definitions of the ABI's kind "attention/1", for one sequence over plain arrays. They say what
// "correct" means: double arithmetic, one rounding at the end, the plainest loops that can be
// checked by eye against the source. Nothing here is meant to be fast, and nothing knows of pages.
//
// A sequence has kv_len cached tokens at positions 0 .. kv_len - 1 and q_len queries, which stand
// at the last q_len positions: query j is at position kv_len - q_len + j and sees no later one. All
// arrays are dense and row-major. Shapes: Hq num_q_heads, Hkv num_kv_heads, D head_dim,
// Dv v_head_dim, L kv_lora_rank, R qk_rope_head_dim.

#include <cstdint>

namespace sdk::reference {

/// What a score goes through before the sum over keys.
struct Softmax {
    float scale = 1;               // score = scale * (q . k)
    float softcap = 0;             // then cap * tanh(score / cap); 0 = off
    std::int32_t window = 0;       // then: visible iff q_pos - k_pos < window; 0 = all earlier keys
    const float* sinks = nullptr;  // [Hq]; a logit per head that joins the normalisation only
};

/// Softmax attention with grouped queries: query head h reads key head h / (Hq / Hkv).
///
/// p[s] = exp(score[s]) / (sum over visible s of exp(score[s]) + exp(sink)), out = sum p[s] v[s].
/// A query that sees no key gives zeros and an lse of -inf.
///
/// @param q    [q_len, Hq, D]
/// @param k    [kv_len, Hkv, D]
/// @param v    [kv_len, Hkv, Dv]
/// @param out  [q_len, Hq, Dv]
/// @param lse  [q_len, Hq] natural log of the denominator, the sink included; may be null
/// Source: Vaswani et al., "Attention Is All You Need", 2017, eq. 1; Ainslie et al., "GQA", 2023,
/// section 2.2; Beltagy et al., "Longformer", 2020, section 3.1 (window); Gemma Team, "Gemma 2",
/// 2024, section 2 (softcap); OpenAI, "gpt-oss model card", 2025, section 2 (sinks).
void gqa_attention(const float* q, const float* k, const float* v, std::int64_t q_len,
                   std::int64_t kv_len, std::int64_t num_q_heads, std::int64_t num_kv_heads,
                   std::int64_t head_dim, std::int64_t v_head_dim, const Softmax& softmax,
                   float* out, float* lse);

/// Absorbed multi-head latent attention: one key of L + R entries per token, shared by all heads;
/// the value is the key's first L entries.
///
/// @param q       [q_len, Hq, L + R], latent part first
/// @param latent  [kv_len, L + R]
/// @param topk    [q_len, index_topk] positions a query may see, in any order, -1 = padding
///                anywhere; null: all visible ones (dense)
/// @param out     [q_len, Hq, L]
/// @param lse     [q_len, Hq], or null
/// Source: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1 and appendix C; "DeepSeek-V3.2", 2025,
/// section 2.1, eq. 2 (the restriction to a selection).
void mla_attention(const float* q, const float* latent, std::int64_t q_len, std::int64_t kv_len,
                   std::int64_t num_q_heads, std::int64_t kv_lora_rank,
                   std::int64_t qk_rope_head_dim, const std::int32_t* topk, std::int64_t index_topk,
                   const Softmax& softmax, float* out, float* lse);

/// score[t, s] = sum_h head_weight[t, h] * max(0, q[t, h] . k[s]); -inf where s is after t.
///
/// @param q            [q_len, index_n_heads, index_head_dim]
/// @param k            [kv_len, index_head_dim]
/// @param head_weight  [q_len, index_n_heads], every constant factor included
/// @param score        [q_len, kv_len]
/// Source: DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1, eq. 1.
void index_scores(const float* q, const float* k, const float* head_weight, std::int64_t q_len,
                  std::int64_t kv_len, std::int64_t index_n_heads, std::int64_t index_head_dim,
                  double* score);

/// The positions of the index_topk largest of score[0 .. num_visible), ascending, then -1.
///
/// Of equal scores the lower position wins (-0 equals +0). NaN counts as larger than every number,
/// so that a broken key is chosen and shows, and does not hide.
///
/// @param positions  [index_topk]
void index_topk(const double* score, std::int64_t num_visible, std::int64_t index_topk,
                std::int32_t* positions);

}  // namespace sdk::reference
