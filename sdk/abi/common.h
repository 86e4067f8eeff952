/* assay plugin ABI: what every kind shares. Part of <abi/plugin.h>; standard includes only.
 *
 * What must stay true of this header (docs/decisions/0001-plugin-abi.md has the reasons):
 *
 *  1. One exported symbol, and it is data: assay_module_entry. Its versions and names are bytes in
 *     the file, so an image that does not fit is refused before any of its code has run.
 *  2. Size first. Every table and argument struct begins with `size`, set by whoever fills it. New
 *     fields are appended; a reader looks at a field newer than 1.0 only through ASSAY_HAS. A struct
 *     with a size is reached by pointer only, never embedded and never in an array by value. The
 *     structs without one (assay_tensor, assay_stream, assay_kv_plane, assay_sample_row,
 *     assay_logit_edit, assay_option) are frozen for the major version.
 *  3. Kinds and services are asked for by a string that carries its revision: "quant/1". Null means
 *     "not here": an answer, never a reason for the host to quietly take something else.
 *  4. Errors are a code and words; the words belong to the caller. Nothing that outlives a call
 *     points into an image, except the static tables of a kind while the image is open.
 *  5. No exception, no longjmp, no C++ type crosses. No plugin starts threads, installs signal
 *     handlers or keeps a static object with a destructor.
 *  6. Every call says its thread in square brackets:
 *       [control]  start-up, configuration, swap. One call at a time for the module. May block,
 *                  allocate and touch files.
 *       [engine]   the step loop. May be called on several streams at once (each stream belongs to
 *                  one thread at a time); calls on one stream run in order. No allocation, no lock,
 *                  no synchronisation, no read of device data by the host; capturable unless a
 *                  capability says otherwise. Scratch is the workspace the caller passes.
 *       [any]      safe from every thread at the same time.
 *       [.. drained]  only after the last device work that uses the object has completed.
 *  7. The host owns memory. Weights, pages, plans and workspaces are allocated by the host at sizes
 *     the plugin names in advance, aligned to 256 bytes at least.
 */
#ifndef ASSAY_ABI_COMMON_H
#define ASSAY_ABI_COMMON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Plugins are built with hidden visibility; this marks the one symbol that is not. */
#if defined(__GNUC__)
#define ASSAY_EXPORT __attribute__((visibility("default")))
#else
#define ASSAY_EXPORT
#endif

#define ASSAY_ABI_MAJOR 0u /* a change here may break; host and plugin must agree exactly */
#define ASSAY_ABI_MINOR 1u /* fields appended; either side may be older. While major is 0: exact too */

/* True when whoever filled *p knew of `field` and set it. */
#define ASSAY_HAS(type, p, field) \
    ((p)->size >= offsetof(type, field) + sizeof((p)->field) && (p)->field)

typedef enum assay_code {
    ASSAY_OK = 0,
    ASSAY_INVALID = 1,     /* the caller broke a stated precondition */
    ASSAY_UNSUPPORTED = 2, /* legal request, not offered by this plugin on this device */
    ASSAY_NO_MEMORY = 3,
    ASSAY_IO = 4,
    ASSAY_CORRUPT = 5,     /* input bytes contradict themselves; never a crash */
    ASSAY_DEVICE_LOST = 6, /* the device context is gone; the host drains and restarts */
    ASSAY_INTERNAL = 7,
    ASSAY_TIMEOUT = 8,     /* a deadline passed; the work may still be running */
    ASSAY_ABORTED = 9      /* a collective was aborted, here or by a peer */
} assay_code;
typedef int32_t assay_status; /* an assay_code; fixed width */

/* Caller-owned place for words about a failure. `err` may be null everywhere it is a parameter. */
typedef struct assay_error {
    uint32_t size;
    assay_status code;
    char text[504]; /* UTF-8, null-terminated, cut to fit; says what, expected, found */
} assay_error;

/* One configured option of a plugin. Plugins refuse keys they do not know. Frozen. */
typedef struct assay_option {
    const char *key, *value;
} assay_option;

/* ---- tensors ---------------------------------------------------------------------------- */

typedef enum assay_dtype {
    ASSAY_DTYPE_NONE = 0,
    ASSAY_F32 = 1, ASSAY_F16, ASSAY_BF16, ASSAY_F8_E4M3, ASSAY_F8_E5M2, ASSAY_I8, ASSAY_U8,
    ASSAY_I32, ASSAY_I64, ASSAY_F64
} assay_dtype;

#define ASSAY_MAX_RANK 5
/* A strided view. Frozen. Innermost stride is 1 unless a call says otherwise. data == NULL: absent. */
typedef struct assay_tensor {
    void *data;
    int32_t dtype; /* assay_dtype */
    int32_t rank;
    int64_t shape[ASSAY_MAX_RANK];  /* outermost first */
    int64_t stride[ASSAY_MAX_RANK]; /* in elements, not bytes */
} assay_tensor;

/* ---- devices, lanes, streams ------------------------------------------------------------- */

typedef enum assay_space { ASSAY_SPACE_HOST, ASSAY_SPACE_PINNED, ASSAY_SPACE_DEVICE } assay_space;

typedef struct assay_device_ref {
    uint32_t size;
    const char *kind; /* "cpu", "cuda" */
    int32_t ordinal;
    int32_t arch;     /* cuda: 10*major + minor (90 = Hopper); cpu: 0 */
    int32_t num_units; /* cuda: multiprocessors; cpu: lanes worth using */
    uint64_t l2_bytes, shared_optin_bytes, total_bytes;
    char name[96];    /* "NVIDIA H200", "AMD EPYC 9xx4 (avx512-vnni)" */
} assay_device_ref;

/* Worker lanes that the host lends to CPU code: one pool, sized by the operator. Each stream of a
 * CPU device has its own, so that a proof can run beside traffic without sharing workers. */
typedef struct assay_lanes assay_lanes;
struct assay_lanes {
    uint32_t size;
    uint32_t width; /* lanes that run at once, the caller's included; at least 1 */
    void *ctx;
    /* Calls fn(arg, i, lane) once for each i in [0, n), lane in [0, width), and returns when all are
       done. No two calls with one lane index overlap. Not reentrant. [engine, control] */
    void (*run)(const assay_lanes *lanes, uint32_t n, void (*fn)(void *arg, uint32_t i, uint32_t lane),
                void *arg);
};

/* Work on one stream runs in order. Frozen. */
typedef struct assay_stream {
    const assay_device_ref *device;
    void *native;             /* cuda: a cudaStream_t of the device's primary context; cpu: null */
    const assay_lanes *lanes; /* cpu: never null; cuda: null */
} assay_stream;

/* ---- host -------------------------------------------------------------------------------- */

typedef struct assay_host assay_host;
struct assay_host {
    uint32_t size;
    uint32_t abi_major, abi_minor;
    void *ctx;                  /* opaque */
    const char *name, *version; /* for the plugin's own log lines */
    /* Null when this host does not offer `service_id`. Lives as long as the module is open. [any] */
    const void *(*service)(const assay_host *host, const char *service_id);
};

#define ASSAY_SERVICE_LOG "log/1"
typedef enum assay_level { ASSAY_DEBUG, ASSAY_INFO, ASSAY_WARN, ASSAY_ERROR } assay_level;
typedef struct assay_log {
    uint32_t size;
    /* `text` is copied before the call returns. Never blocks: a full queue drops and counts. [any] */
    void (*write)(const assay_host *host, int32_t level, const char *text);
} assay_log;

#define ASSAY_SERVICE_METRICS "metrics/1"
typedef struct assay_metrics {
    uint32_t size;
    /* Named assay_plugin_<what>_<unit>; the host adds the labels plugin and kind. [control] */
    assay_status (*counter)(const assay_host *host, const char *name, const char *help, uint32_t *id);
    assay_status (*gauge)(const assay_host *host, const char *name, const char *help, uint32_t *id);
    void (*add)(const assay_host *host, uint32_t id, double value); /* relaxed atomic. [any] */
    void (*set)(const assay_host *host, uint32_t id, double value); /* gauges only. [any] */
} assay_metrics;

#define ASSAY_SERVICE_PARALLEL "parallel/1"
typedef struct assay_parallel {
    uint32_t size;
    /* Lanes for [control] work (repacking, scans); step work uses the lanes of its stream. */
    const assay_lanes *(*control_lanes)(const assay_host *host);
} assay_parallel;

#define ASSAY_SERVICE_MEMORY "memory/1"
typedef struct assay_memory {
    uint32_t size;
    /* For the rare table that a plugin must keep itself; counted against the plugin's budget.
       256-byte aligned. [control] */
    assay_status (*alloc)(const assay_host *host, const assay_device_ref *dev, int32_t space,
                          uint64_t bytes, void **out, assay_error *err);
    void (*free)(const assay_host *host, const assay_device_ref *dev, int32_t space, void *ptr);
} assay_memory;

/* ---- module ------------------------------------------------------------------------------ */

#define ASSAY_MAGIC 0x31595341u /* "ASY1" as bytes in a file */

/* Says what the image is. The strings are in line, so a scanner reads them from the file itself. */
typedef struct assay_module {
    uint32_t magic; /* ASSAY_MAGIC */
    uint32_t size;
    uint32_t abi_major, abi_minor; /* what the plugin was compiled against */
    char id[64];      /* "cpu-flash": the name a configuration uses; unique among loaded images */
    char version[32]; /* "1.4.2" */
    char vendor[64];  /* who to ask */
    char build[160];  /* compiler, device toolkit and targets: facts for the operator */
    char kinds[128];  /* space-separated interface ids: "quant/1 attention/1" */
    /* Everything that can fail or allocate happens here, not when the image is mapped. [control] */
    assay_status (*open)(const assay_host *host, assay_error *err);
    /* const assay_quant * and so on; null for an id not in `kinds`. Static tables. After open. [any] */
    const void *(*query)(const char *interface_id);
    /* After it returns no work of the plugin is queued and no callback of the host is held. May be
       followed by open() again. [control] */
    void (*close)(void);
} assay_module;

/* The only exported symbol. */
ASSAY_EXPORT extern const assay_module assay_module_entry;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ABI_COMMON_H */
