/* assay plugin ABI, kind "attention/1": how queries meet the KV cache. */
#ifndef ASSAY_ABI_ATTENTION_H
#define ASSAY_ABI_ATTENTION_H
#include "abi/common.h"
#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_KIND_ATTENTION "attention/1"

typedef enum assay_attn_class { ASSAY_ATTN_GQA = 1, ASSAY_ATTN_MLA, ASSAY_ATTN_MLA_DSA } assay_attn_class;

/* PREFILL: queries of several tokens. DECODE: one token (or the few of a speculative step) each.
 * MIXED: both in one call, decode sequences first. Without MIXED the host calls run twice a step. */
typedef enum assay_phase { ASSAY_PREFILL = 1, ASSAY_DECODE = 2, ASSAY_MIXED = 4 } assay_phase;

typedef enum assay_index_role {
    ASSAY_INDEX_NONE = 0,
    ASSAY_INDEX_FULL,  /* owns an index_k plane; index() writes topk_slots */
    ASSAY_INDEX_SHARED /* reads the topk_slots of the nearest preceding full layer */
} assay_index_role;

/* The attention of one layer on one rank. Sizes that a class does not have are 0. */
typedef struct assay_attn_layer {
    uint32_t size;
    int32_t attn_class;
    int32_t num_q_heads, num_kv_heads, head_dim, v_head_dim;       /* GQA; MLA: num_q_heads */
    int32_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim;      /* MLA; v_head_dim too */
    int32_t index_role, index_n_heads, index_head_dim, index_topk; /* MLA_DSA */
    int32_t window;      /* 0 = full; else key visible iff q_pos - k_pos < window */
    float softmax_scale;
    float logit_softcap; /* 0 = off; else cap * tanh(score / cap), before the mask */
    bool has_sinks;      /* one logit per head that joins the normalisation only */
} assay_attn_layer;

typedef struct assay_kv_plane { /* one array of pages per plane and layer. Frozen. */
    char name[16];              /* "k", "v", "latent", "index_k" */
    int32_t dtype;
    uint32_t width;             /* elements per token: what kv_read returns */
    uint64_t bytes_per_token;   /* one layer, this rank's heads, scales included */
} assay_kv_plane;

#define ASSAY_MAX_PLANES 4
typedef struct assay_kv_layout {
    uint32_t size;
    char id[64];          /* "mla.576.bf16.p64/1"; equal ids = byte-compatible pages */
    uint32_t page_tokens; /* tokens per page (the engine's block_size) */
    uint32_t num_planes;  /* of this layer; a shared index layer has no index_k plane */
    assay_kv_plane planes[ASSAY_MAX_PLANES];
} assay_kv_layout;

typedef struct assay_attn_config {
    uint32_t size;
    const assay_device_ref *device;
    int32_t io_dtype;    /* of q, k, v, out, index_q */
    int32_t kv_dtype;    /* wanted cache dtype; ASSAY_DTYPE_NONE: the plugin's own choice */
    uint32_t page_tokens; /* wanted; 0: the plugin's own choice */
    const assay_option *options;
    uint32_t num_options;
} assay_attn_config;

#define ASSAY_ATTN_CAPTURABLE 1u /* run() issues no allocation, no sync, no host read of device data */
#define ASSAY_ATTN_LSE 2u        /* can return the log-sum-exp */
#define ASSAY_ATTN_SINK 4u
#define ASSAY_ATTN_ORDERED 8u    /* same bits for a sequence whatever else is in the batch */
#define ASSAY_ATTN_WINDOW 16u
#define ASSAY_ATTN_SOFTCAP 32u
#define ASSAY_ATTN_EXPANDED 64u  /* MLA prefill from keys and values expanded per head */

/* One row of the capability table: what is served AND what is not, with the reason. The two phase
 * sets must cover everything and share nothing, or the image is refused. */
typedef struct assay_attn_cap {
    uint32_t size;
    int32_t attn_class;
    int32_t min_arch, max_arch;  /* cuda; 0 = any */
    int32_t max_head_dim;        /* GQA: head_dim and v_head_dim; MLA: kv_lora_rank + rope. 0 = any */
    uint64_t io_dtypes, kv_dtypes; /* bit (1 << assay_dtype) */
    uint32_t phases, phases_absent;
    const char *absent_reason;   /* required when phases_absent != 0; printed to the operator */
    uint32_t flags;              /* ASSAY_ATTN_* */
} assay_attn_cap;

/* One step, or the decode or prefill part of one. Decode sequences come first, then prefill.
 *
 * Token rows are absolute: sequence i owns rows [cu_q[i], cu_q[i+1]) of q, k, v, out, slot_map, and
 * cu_q[0] need not be 0, so that a part of a step is a view of the whole. Query j of sequence i
 * stands at position kv_len[i] - (cu_q[i+1] - cu_q[i]) + j. A sequence may have no query (its rows
 * are empty) and, then, no cached token either. */
typedef struct assay_attn_batch {
    uint32_t size;
    int32_t num_seqs, num_decode_seqs;
    int32_t num_tokens;                     /* query tokens of this call */
    int32_t max_q_len, max_kv_len, max_blocks; /* bounds, for launch shapes */
    const int32_t *cu_q;        /* [num_seqs + 1], device */
    const int32_t *kv_len;      /* [num_seqs], device: tokens in cache, this step's included */
    const int32_t *block_table; /* [num_seqs, max_blocks], device: page ids, -1 = unused */
    const int32_t *slot_map;    /* [rows], device: page * page_tokens + offset, -1 = do not store */
    const int32_t *host_cu_q;   /* the same in host memory, for schedules */
    const int32_t *host_kv_len;
} assay_attn_batch;

/* One layer of one step. T rows, D head_dim, Dv v_head_dim, L kv_lora_rank, R qk_rope_head_dim. */
typedef struct assay_attn_args {
    uint32_t size;
    const assay_attn_batch *batch;
    int32_t phase;
    void *planes[ASSAY_MAX_PLANES]; /* this layer's pages, one base pointer per plane */
    assay_tensor q;          /* GQA [T, Hq, D]; MLA absorbed [T, Hq, L + R], latent part first */
    assay_tensor k, v;       /* append: GQA [T, Hkv, D], [T, Hkv, Dv]; MLA: k = latent [T, L + R] */
    assay_tensor index_k;    /* append, full index layers: [T, index_head_dim] */
    assay_tensor k_expanded, v_expanded; /* MLA expanded prefill: [Tkv, Hq, nope + R], [Tkv, Hq, Dv] */
    assay_tensor topk_slots; /* DSA: [T, index_topk] int32, slots; -1 = padding, anywhere in a row */
    assay_tensor sinks;      /* [Hq] f32, or absent */
    assay_tensor out;        /* [T, Hq, Dv]; MLA absorbed [T, Hq, L] */
    assay_tensor lse;        /* [T, Hq] f32, natural log, or absent */
    void *plan;              /* what prepare() wrote for this step */
    void *workspace;
    uint64_t workspace_bytes;
} assay_attn_args;

/* score(t, s) = sum_h weight[t, h] * max(0, q[t, h] . k[s]) for cached s <= t of the same sequence;
 * keeps the index_topk largest. Of equal scores the lower position wins, on every backend. When
 * t + 1 <= index_topk the result is all positions. Order within a row is free; -1 pads the tail. */
typedef struct assay_attn_index_args {
    uint32_t size;
    const assay_attn_batch *batch;
    int32_t phase;
    void *planes[ASSAY_MAX_PLANES];
    assay_tensor q;           /* [T, index_n_heads, index_head_dim] */
    assay_tensor head_weight; /* [T, index_n_heads] f32, every constant factor included */
    assay_tensor topk_slots;  /* out: [T, index_topk] int32 */
    void *plan, *workspace;
    uint64_t workspace_bytes;
} assay_attn_index_args;

typedef struct assay_attention {
    uint32_t size;
    uint32_t num_caps;
    const assay_attn_cap *const *caps;

    /* OK, or UNSUPPORTED with the first condition that fails: the words a refusal to start prints for
       each candidate. Agrees with `caps`. [control] */
    assay_status (*check)(const assay_attn_config *config, const assay_attn_layer *layer,
                          int32_t phase, assay_error *why);
    /* The pages of one layer, before anything is created, so that the host can plan memory. */
    assay_status (*kv_layout)(const assay_attn_config *config, const assay_attn_layer *layer,
                              assay_kv_layout *out, assay_error *err); /* [control] */

    assay_status (*create)(const assay_host *host, const assay_attn_config *config,
                           const assay_attn_layer *const *layers, uint32_t num_layers, void **self,
                           char tier[32], assay_error *err); /* [control] */
    void (*destroy)(void *self);                             /* [control, drained] */
    /* Fixed for the instance's life, so that captured graphs keep valid addresses. max_tokens is per
       step, max_kv_len per sequence. The workspace is private to a stream. [control] */
    assay_status (*sizes)(void *self, int32_t max_seqs, int32_t max_tokens, int32_t max_kv_len,
                          uint64_t *plan_bytes, uint64_t *workspace_bytes, assay_error *err);

    /* Once a step, shared by all layers: split-KV schedule and the like, into `plan`. Reads the host
       arrays of the batch. Not captured; run between steps. Null when there is nothing to plan.
       [engine] */
    assay_status (*prepare)(void *self, const assay_attn_batch *batch, int32_t phase, void *plan,
                            const assay_stream *s, assay_error *err);
    /* Writes k, v (and index_k) of the new tokens into the pages named by slot_map. [engine] */
    assay_status (*append)(void *self, uint32_t layer, const assay_attn_args *a,
                           const assay_stream *s, assay_error *err);
    /* DSA full layers only; after append. Null otherwise. [engine] */
    assay_status (*index)(void *self, uint32_t layer, const assay_attn_index_args *a,
                          const assay_stream *s, assay_error *err);
    /* A row that sees no key yields zeros and an lse of -inf. [engine] */
    assay_status (*run)(void *self, uint32_t layer, const assay_attn_args *a, const assay_stream *s,
                        assay_error *err);

    /* out[i, :] = what is cached at slots[i], widened to f32; [num_slots, width]. Slot -1: a row of
       zeros. For taps, proofs and conversions. slots is device memory. [engine] */
    assay_status (*kv_read)(void *self, uint32_t layer, uint32_t plane, void *const planes[ASSAY_MAX_PLANES],
                            const int32_t *slots, int64_t num_slots, const assay_tensor *out,
                            const assay_stream *s, assay_error *err);
    /* Optional: rewrite live pages from another layout, for a hot swap without recomputing. */
    assay_status (*convert_pages)(void *self, uint32_t layer, const assay_kv_layout *from,
                                  void *const src[ASSAY_MAX_PLANES], void *const dst[ASSAY_MAX_PLANES],
                                  const int32_t *page_ids, int32_t num_pages, const assay_stream *s,
                                  assay_error *err); /* [engine] */
} assay_attention;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ABI_ATTENTION_H */
