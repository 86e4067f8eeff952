/* assay plugin ABI, kind "quant/1": what a weight format is, and how to multiply by it.
 *
 * A plain bf16 weight is a format like any other: the daemon knows one matmul. */
#ifndef ASSAY_ABI_QUANT_H
#define ASSAY_ABI_QUANT_H
#include "abi/common.h"
#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_KIND_QUANT "quant/1"

/* Stored bytes of W [N, K] = ceil(N / block_rows) * (K / block_cols) * block_bytes, plus sides. */
typedef struct assay_quant_format {
    uint32_t size;
    const char *id;      /* lower case: "bf16", "q4_k", "iq2_xxs" */
    uint32_t block_rows; /* weight rows (N) sharing one block: 1, or 128 for square scaling blocks */
    uint32_t block_cols; /* elements along K per block; K must be a multiple of it */
    uint32_t block_bytes; /* stored bytes of one block, in-line scales included */
    uint32_t num_sides;  /* side tensors beside the packed one: per-tensor scale, zero points */
    const char *const *side_names;
    const char *source;  /* where the format is defined */
} assay_quant_format;

typedef enum assay_quant_op {
    ASSAY_Q_ROWS = 1, /* dequantize chosen rows (embedding lookup, proofs) */
    ASSAY_Q_MATMUL,   /* y = x W^T */
    ASSAY_Q_BATCHED,  /* one product per head */
    ASSAY_Q_GROUPED,  /* rows sorted by expert */
    ASSAY_Q_REPACK
} assay_quant_op;

typedef enum assay_support { ASSAY_NONE, ASSAY_CORRECT, ASSAY_TUNED } assay_support;

typedef enum assay_glu { /* y = act(gate) * up; gate is w[0], up is w[1] */
    ASSAY_GLU_NONE = 0,
    ASSAY_GLU_SILU,      /* silu(g) * u */
    ASSAY_GLU_GELU_TANH, /* gelu_tanh(g) * u */
    ASSAY_GLU_SILU_CLAMP /* g = min(g, limit), u = clamp(u, -limit, limit);
                            g * sigmoid(alpha g) * (u + 1)   (gpt-oss: alpha 1.702, limit 7) */
} assay_glu;

#define ASSAY_MM_ACCUMULATE 1u /* y += product (residual); otherwise y is overwritten */
#define ASSAY_MM_PRECISE 2u    /* x is not rounded below f32 and accumulation is f32 or better: for
                                  routers and indexers, whose choices flip */
#define ASSAY_MM_FINE 4u       /* x keeps at least 14 bits where the plugin rounds it: for models in
                                  which later choices of experts or index positions hang on it */

#define ASSAY_LAYOUT_STORED "stored" /* the bytes of the model file */

/* W: [N, K]; batched and grouped: [E, N, K], experts or heads outermost. */
typedef struct assay_weight {
    uint32_t size;
    const char *format;          /* a format id */
    const char *layout;          /* ASSAY_LAYOUT_STORED, or the plugin's own packed layout id */
    int64_t experts, rows, cols; /* E (1 when dense), N, K: logical elements */
    const void *data;            /* device memory */
    uint64_t data_bytes;
    const void *sides[4];        /* device memory, in side_names order */
} assay_weight;

/* What the host wants to know whether it may be run. m is the largest row count. */
typedef struct assay_quant_query {
    uint32_t size;
    int32_t op; /* assay_quant_op */
    const char *format;
    int32_t x_dtype, y_dtype; /* ROWS: y_dtype is that of `out` */
    int32_t num_weights;      /* products fused in one call, 1..ASSAY_MAX_FUSED */
    int32_t glu;
    uint32_t flags;           /* ASSAY_MM_* */
    bool bias;
    int64_t m, n, k, experts;
} assay_quant_query;

#define ASSAY_MAX_FUSED 4

/* y[i][m, :] = x[m, :] . w[i]^T (+ bias[i]) (+ y[i]), i < num_weights: products that share x.
 *
 * matmul   x [M, K], y[i] [M, N_i], bias[i] [N_i]
 * batched  x [M, E, K], y[i] [M, E, N]: row m of head e meets w[e]; no bias
 * grouped  slots sorted by expert: slot s in [offset[e], offset[e+1]) multiplies row row_ids[s] of x
 *          (row s when row_ids is null) by w[e]; x [X, K], y[i] [S, N_i], bias[i] [E, N_i]
 * glu      num_weights is 2 and y[0] alone is written: act(product 0) * product 1, per assay_glu
 *
 * The weights of one call may differ in format and rows, never in cols or experts. Outer strides of
 * x and y are free; the innermost is 1. x and y do not overlap. The result for one row must not
 * depend on the other rows of the call when the plugin declares ASSAY_QUANT_ROW_INVARIANT. */
typedef struct assay_matmul {
    uint32_t size;
    int32_t num_weights;
    const assay_weight *w[ASSAY_MAX_FUSED];
    assay_tensor x;
    assay_tensor y[ASSAY_MAX_FUSED];
    assay_tensor bias[ASSAY_MAX_FUSED]; /* f32; data null when there is none */
    int32_t glu;
    float glu_alpha, glu_limit;
    uint32_t flags;
    const int32_t *row_ids;       /* grouped: [S] device memory, or null */
    const int32_t *expert_offset; /* grouped: [E + 1] device memory: no host read, so graphs hold it */
    int32_t num_slots;            /* grouped: S, rows of y */
    int32_t max_rows_per_expert;  /* grouped: host-known bound for launch shapes */
    void *workspace;              /* workspace_bytes() at least, private to the stream */
    uint64_t workspace_bytes;
} assay_matmul;

typedef struct assay_quant_config {
    uint32_t size;
    const assay_device_ref *device;
    const assay_option *options;
    uint32_t num_options;
} assay_quant_config;

#define ASSAY_QUANT_ROW_INVARIANT 1u /* same bits for a row whatever the batch around it */

typedef struct assay_quant {
    uint32_t size;
    uint32_t num_formats;
    const assay_quant_format *const *formats;
    uint32_t flags; /* ASSAY_QUANT_* */

    /* UNSUPPORTED, naming the first condition that fails, when this device or option cannot be
       served. `tier` (ASCII, at most 32 bytes) receives what will run: "avx512-vnni", "sm_90a".
       [control] */
    assay_status (*create)(const assay_host *host, const assay_quant_config *config, void **self,
                           char tier[32], assay_error *err);
    void (*destroy)(void *self); /* [control, drained] */

    /* An assay_support. NONE comes with the first condition that fails. [control] */
    int32_t (*supports)(void *self, const assay_quant_query *query, assay_error *why);

    /* Picks the layout of a weight for serving. Writes ASSAY_LAYOUT_STORED and 0 when the stored
       form is used as it is; otherwise the host allocates packed_bytes, calls repack once, and may
       drop the stored form. Null: always stored. `op` is how the weight will be used. [control] */
    assay_status (*packed_layout)(void *self, const assay_weight *stored, int32_t op,
                                  char layout[64], uint64_t *packed_bytes, assay_error *err);
    assay_status (*repack)(void *self, const assay_weight *stored, const assay_weight *packed,
                           void *packed_data, const assay_stream *s, assay_error *err);

    /* Largest scratch that `op` with at most max_m rows (grouped: slots) of x and these weights
       fused in one call asks for. [control] */
    uint64_t (*workspace_bytes)(void *self, int32_t op, const assay_weight *const *w,
                                int32_t num_weights, int64_t max_m);

    /* out[i, :] = row row_ids[i] of W seen as [E * N, K]; out [num_ids, K] f32, f16 or bf16. Works
       on stored and packed layouts alike. Ids out of range: rows of NaN. [engine] */
    assay_status (*rows)(void *self, const assay_weight *w, const int32_t *row_ids, int64_t num_ids,
                         const assay_tensor *out, const assay_stream *s, assay_error *err);
    assay_status (*matmul)(void *self, const assay_matmul *a, const assay_stream *s,
                           assay_error *err); /* [engine] */
    assay_status (*batched_matmul)(void *self, const assay_matmul *a, const assay_stream *s,
                                   assay_error *err); /* [engine] */
    assay_status (*grouped_matmul)(void *self, const assay_matmul *a, const assay_stream *s,
                                   assay_error *err); /* [engine] */

    /* Checks stored blocks for values no writer emits (NaN or infinite scales). First bad block index
       in *bad_block, or -1. Host memory; reads num_blocks * block_bytes. Null: no check. [any] */
    assay_status (*scan)(const char *format, const void *blocks, uint64_t num_blocks,
                         int64_t *bad_block);
} assay_quant;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ABI_QUANT_H */
