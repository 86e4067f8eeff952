/* assay plugin ABI, kind "device/1": memory, streams, graphs, pointwise ops, collectives. */
#ifndef ASSAY_ABI_DEVICE_H
#define ASSAY_ABI_DEVICE_H
#include "abi/common.h"
#include "abi/quant.h" /* assay_glu */
#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_KIND_DEVICE "device/1"

typedef struct assay_device_config {
    uint32_t size;
    int32_t ordinal;
    const assay_option *options;
    uint32_t num_options;
} assay_device_config;

/* ---- pointwise ops ------------------------------------------------------------------------ *
 * T tokens, H hidden_size, E routed experts, V vocab_size. All [engine], all capturable. Tensors are
 * strided; the innermost stride is 1. Statistics (means, softmax sums) accumulate in f32 or better.
 * `out` may be `x` where both have the same shape and strides, and nowhere else. */

typedef enum assay_op {
    ASSAY_OP_COPY = 1, ASSAY_OP_RMSNORM, ASSAY_OP_LAYERNORM, ASSAY_OP_ROPE_TABLE, ASSAY_OP_ROPE,
    ASSAY_OP_GLU, ASSAY_OP_ADD, ASSAY_OP_SCALE, ASSAY_OP_ADD_BIAS, ASSAY_OP_HADAMARD, ASSAY_OP_SOFTCAP,
    ASSAY_OP_ROUTER, ASSAY_OP_EXPERT_SORT, ASSAY_OP_EXPERT_COMBINE, ASSAY_OP_GATHER_ROWS,
    ASSAY_OP_LOGITS_EDIT, ASSAY_OP_LOGITS_MASK, ASSAY_OP_LOGPROBS, ASSAY_OP_SAMPLE
} assay_op;

typedef enum assay_rope_style {
    ASSAY_ROPE_NORM = 1, /* interleaved: pair i = (x[2i], x[2i+1]) */
    ASSAY_ROPE_NEOX      /* half split: pair i = (x[i], x[i + n/2]) */
} assay_rope_style;

typedef struct assay_router { /* one model's rule for choosing experts */
    uint32_t size;
    int32_t gating;           /* 1 softmax, 2 sigmoid, 3 softmax over the chosen logits,
                                 4 sqrt(softplus) */
    int32_t top_k;
    int32_t num_groups, top_groups; /* group-limited routing; num_groups 0 or 1 = off. Group score:
                                       sum of the two largest with a selection bias, else the largest */
    bool normalize;           /* chosen weights are divided by their sum */
    float scale;              /* applied last; 1 = none */
} assay_router;

typedef struct assay_logit_edit { /* logit = (logit > 0 ? logit / repetition : logit * repetition) + add. Frozen. */
    int32_t row, token;
    float repetition; /* 1 = off */
    float add;        /* bias minus presence and frequency penalties */
} assay_logit_edit;

typedef struct assay_sample_row { /* one per sequence. Frozen. */
    float temperature;            /* 0 = greedy */
    float top_p, min_p;           /* 1 and 0 = off */
    int32_t top_k;                /* 0 = off */
    float uniform;                /* in [0, 1), drawn by the host, so that a seed replays exactly */
} assay_sample_row;

typedef struct assay_ops {
    uint32_t size;
    /* OK, or UNSUPPORTED with the reason. dtype is that of the activations. Every entry below is a
       function, also of ops that are not supported. [control] */
    assay_status (*supports)(void *self, int32_t op, int32_t dtype, assay_error *why);

    /* out = x, element for element, converting dtype; equal shapes, any strides. */
    assay_status (*copy)(void *self, const assay_tensor *x, const assay_tensor *out,
                         const assay_stream *s);
    /* residual += x (when residual is given), then, over the last dimension n:
       out = v / sqrt(mean(v^2) + eps) * weight, v = residual or x. weight [n] f32, or null: ones. */
    assay_status (*rmsnorm)(void *self, const assay_tensor *x, const assay_tensor *residual,
                            const assay_tensor *weight, float eps, const assay_tensor *out,
                            const assay_stream *s);
    /* out = (x - mean) / sqrt(var + eps) * weight + bias; biased variance. bias null: 0. */
    assay_status (*layernorm)(void *self, const assay_tensor *x, const assay_tensor *weight,
                              const assay_tensor *bias, float eps, const assay_tensor *out,
                              const assay_stream *s);
    /* cos_sin[t, 0, i] = mscale * cos(pos[t] * inv_freq[i]), cos_sin[t, 1, i] likewise sin; i < n/2.
       The angle is formed in f64. inv_freq f64 device memory; cos_sin [T, 2, n/2] f32. Once a step
       per RoPE configuration, shared by all layers. */
    assay_status (*rope_table)(void *self, const int32_t *pos, int64_t num_tokens,
                               const double *inv_freq, int32_t half_dims, float mscale,
                               const assay_tensor *cos_sin, const assay_stream *s);
    /* Rotates the first n dims of each head of x [T, heads, D] (n = 2 * half dims of cos_sin); dims
       beyond n are copied. out may be x or a strided view elsewhere. */
    assay_status (*rope)(void *self, const assay_tensor *x, const assay_tensor *cos_sin, int32_t style,
                         const assay_tensor *out, const assay_stream *s);
    /* out = act(gate) * up, all [T, I]; kinds of assay_glu. */
    assay_status (*glu)(void *self, int32_t kind, float alpha, float limit, const assay_tensor *gate,
                        const assay_tensor *up, const assay_tensor *out, const assay_stream *s);
    /* out = a + scale * b. */
    assay_status (*add)(void *self, const assay_tensor *a, const assay_tensor *b, float scale,
                        const assay_tensor *out, const assay_stream *s);
    assay_status (*scale)(void *self, const assay_tensor *x, float factor, const assay_tensor *out,
                          const assay_stream *s);
    /* x[t, :] += bias[:]; with expert_offset: bias [E, n], slots sorted by expert. f32 bias. */
    assay_status (*add_bias)(void *self, const assay_tensor *x, const assay_tensor *bias,
                             const int32_t *expert_offset, const assay_stream *s);
    /* Orthonormal Walsh-Hadamard transform (Sylvester order) of the last dimension, a power of two. */
    assay_status (*hadamard)(void *self, const assay_tensor *x, const assay_tensor *out,
                             const assay_stream *s);
    /* out = cap * tanh(x / cap). */
    assay_status (*softcap)(void *self, const assay_tensor *x, float cap, const assay_tensor *out,
                            const assay_stream *s);

    /* Chooses experts. logits [T, E] f32; bias [E] f32 or null (selection only); ids [T, top_k] i32,
       best first, of equal scores the lower expert first, NaN last; weights [T, top_k] f32. */
    assay_status (*router)(void *self, const assay_router *r, const assay_tensor *logits,
                           const assay_tensor *bias, const assay_tensor *ids,
                           const assay_tensor *weights, const assay_stream *s);
    /* Sorts the T * top_k (token, choice) pairs by expert, stably. slot_of[t * top_k + j] is the slot
       of the pair; row_ids[slot] its token; offset [E + 1]. */
    assay_status (*expert_sort)(void *self, const assay_tensor *ids, int32_t num_experts,
                                int32_t *slot_of, int32_t *row_ids, int32_t *offset,
                                const assay_stream *s);
    /* out[t] = (accumulate ? out[t] : 0) + sum_j weights[t, j] * y[slot_of[t * top_k + j]], in order
       of j. y [S, H], weights [T, top_k] f32. */
    assay_status (*expert_combine)(void *self, const assay_tensor *y, const int32_t *slot_of,
                                   const assay_tensor *weights, bool accumulate,
                                   const assay_tensor *out, const assay_stream *s);
    /* out[i, :] = x[rows[i], :]; a row out of range gives NaN. */
    assay_status (*gather_rows)(void *self, const assay_tensor *x, const int32_t *rows,
                                const assay_tensor *out, const assay_stream *s);

    /* Penalties and logit bias as sparse edits, in device memory; at most one per (row, token). */
    assay_status (*logits_edit)(void *self, const assay_tensor *logits, const assay_logit_edit *edits,
                                int64_t num_edits, const assay_stream *s);
    /* Sets to -inf every token whose bit is 0. mask_row[n]: row of `bits` for each row, -1 = none. */
    assay_status (*logits_mask)(void *self, const assay_tensor *logits, const uint32_t *bits,
                                int64_t words_per_row, const int32_t *mask_row, const assay_stream *s);
    /* Natural log-probabilities of the softmax of each row. logprob[n] of tokens[n] (null: skip);
       the num_top most likely ids and theirs, best first, lower id first of equals. Of a row
       without finite logits -inf; missing ids are -1. */
    assay_status (*logprobs)(void *self, const assay_tensor *logits, const int32_t *tokens,
                             float *logprob, int32_t num_top, int32_t *top_ids, float *top_logprobs,
                             const assay_stream *s);
    /* Greedy: the largest logit, lowest id of equals. Otherwise softmax(logits / temperature), cut
       by top_k, then top_p (of what top_k left, renormalised; at least one token stays), then min_p
       (ties by lower id), then the inverse of the cumulative distribution, most likely first, at
       `uniform`. Only finite logits take part; a row without any gives -1. Writes token [n]. */
    assay_status (*sample)(void *self, const assay_tensor *logits, const assay_sample_row *rows,
                           int32_t *token, const assay_stream *s);
} assay_ops;

/* ---- collectives -------------------------------------------------------------------------- *
 * Null table: single rank only. Every rank calls in the same order. All can be captured with the
 * stream. Buffers are in device memory. */
typedef struct assay_collectives {
    uint32_t size;
    uint32_t id_bytes; /* of unique_id; at most 256 */
    assay_status (*unique_id)(void *self, uint8_t *id, assay_error *err); /* rank 0. [control] */
    /* Blocks until all ranks joined, or timeout_ms passed: TIMEOUT. [control] */
    assay_status (*join)(void *self, const uint8_t *id, int32_t rank, int32_t world,
                         int32_t timeout_ms, void **comm, assay_error *err);
    void (*leave)(void *self, void *comm); /* [control, drained] */
    /* Makes every pending and later call on comm return ABORTED, soon, on this rank. [any] */
    void (*abort)(void *self, void *comm);
    /* OK while healthy; otherwise what went wrong asynchronously. Never blocks. [any] */
    assay_status (*health)(void *self, void *comm, assay_error *err);

    assay_status (*all_reduce)(void *self, void *comm, const assay_tensor *in, const assay_tensor *out,
                               const assay_stream *s); /* sum; out may be in. [engine] */
    /* residual += sum over ranks of x, then out = rmsnorm(residual): the two that always meet. Null:
       the host issues the parts. [engine] */
    assay_status (*all_reduce_rmsnorm)(void *self, void *comm, const assay_tensor *x,
                                       const assay_tensor *residual, const assay_tensor *weight,
                                       float eps, const assay_tensor *out, const assay_stream *s);
    assay_status (*all_gather)(void *self, void *comm, const assay_tensor *in, const assay_tensor *out,
                               const assay_stream *s);
    assay_status (*reduce_scatter)(void *self, void *comm, const assay_tensor *in,
                                   const assay_tensor *out, const assay_stream *s);
    assay_status (*broadcast)(void *self, void *comm, const assay_tensor *inout, int32_t root,
                              const assay_stream *s);
    /* MoE dispatch and combine: row counts per peer live in device memory. Optional. */
    assay_status (*all_to_all_rows)(void *self, void *comm, const assay_tensor *in,
                                    const int32_t *send_rows, const assay_tensor *out,
                                    const int32_t *recv_rows, const assay_stream *s);
} assay_collectives;

/* ---- the device --------------------------------------------------------------------------- */

typedef struct assay_device {
    uint32_t size;
    const char *kind; /* "cpu", "cuda" */
    /* Devices that could be opened now; 0 with the reason in err (no driver, no device). [control] */
    assay_status (*count)(int32_t *out, assay_error *err);
    assay_status (*open)(const assay_host *host, const assay_device_config *config, void **self,
                         assay_device_ref *ref, assay_error *err); /* [control] */
    void (*close)(void *self);

    /* Memory. [control]; nothing here is called from the step loop. 256-byte aligned. Device memory
       of the cpu kind is host memory (unified), and so is the pinned space. */
    assay_status (*alloc)(void *self, int32_t space, uint64_t bytes, void **out, assay_error *err);
    void (*free)(void *self, int32_t space, void *ptr);
    assay_status (*memory)(void *self, uint64_t *free_bytes, uint64_t *total_bytes);
    bool host_visible; /* the host may read and write device memory directly */

    /* Streams and events. `lanes` serves the stream of a cpu device; ignored elsewhere. */
    assay_status (*stream_create)(void *self, int32_t priority, const assay_lanes *lanes,
                                  assay_stream *out, assay_error *err);             /* [control] */
    void (*stream_destroy)(void *self, assay_stream *s);                            /* [control, drained] */
    assay_status (*stream_sync)(void *self, const assay_stream *s, assay_error *err); /* [control] */
    assay_status (*event_create)(void *self, void **event, assay_error *err);       /* [control] */
    void (*event_destroy)(void *self, void *event);
    assay_status (*event_record)(void *self, void *event, const assay_stream *s);   /* [engine] */
    assay_status (*event_wait)(void *self, const assay_stream *s, void *event);     /* device side. [engine] */
    assay_status (*event_done)(void *self, void *event, bool *done, assay_error *err); /* never blocks. [any] */
    /* The one call that may block the step loop: until the event, or TIMEOUT. [engine] */
    assay_status (*event_sync)(void *self, void *event, int64_t timeout_us, assay_error *err);
    assay_status (*event_elapsed_us)(void *self, void *from, void *to, double *us);

    /* Between any two spaces, in stream order. [engine] */
    assay_status (*copy)(void *self, void *dst, const void *src, uint64_t bytes, const assay_stream *s);
    assay_status (*fill)(void *self, void *dst, int32_t byte, uint64_t bytes, const assay_stream *s);

    /* Graphs. Null when the device has none; the engine then launches op by op. A graph dies before
       the instances whose kernels it holds. */
    assay_status (*capture_begin)(void *self, const assay_stream *s, assay_error *err); /* [control] */
    assay_status (*capture_end)(void *self, const assay_stream *s, void **graph, assay_error *err);
    assay_status (*graph_launch)(void *self, void *graph, const assay_stream *s);       /* [engine] */
    void (*graph_destroy)(void *self, void *graph);                                     /* [control, drained] */

    const assay_ops *ops;
    const assay_collectives *collectives; /* null = single rank only */
    const char *collectives_absent;       /* why, when null */
} assay_device;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ABI_DEVICE_H */
