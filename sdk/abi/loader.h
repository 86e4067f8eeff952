/* assay plugin ABI, kind "loader/1": what a model file holds. */
#ifndef ASSAY_ABI_LOADER_H
#define ASSAY_ABI_LOADER_H
#include "abi/common.h"
#ifdef __cplusplus
extern "C" {
#endif

#define ASSAY_KIND_LOADER "loader/1"

typedef struct assay_tensor_info {
    uint32_t size;
    const char *name;   /* as the file spells it; the model code maps names, not the loader */
    const char *format; /* a quant format id; plain types are formats too: "bf16", "f32", "q4_k" */
    int32_t rank;
    int64_t shape[ASSAY_MAX_RANK]; /* logical elements, outermost first; the last is contiguous */
    uint32_t file;      /* index into file() */
    uint64_t offset, bytes; /* byte range inside that file, already checked to lie in it */
} assay_tensor_info;

typedef enum assay_meta_type {
    ASSAY_META_STR = 1, ASSAY_META_I64, ASSAY_META_F64, ASSAY_META_BOOL, ASSAY_META_ARRAY
} assay_meta_type;

typedef struct assay_meta_str { /* one item of a string array. Frozen. */
    const char *data;           /* not null-terminated */
    uint64_t bytes;
} assay_meta_str;

/* STR: `data` points at `count` bytes. I64, F64, BOOL (uint8_t): at one value. ARRAY: at `count`
 * values of item_type (int64_t, double, uint8_t, assay_meta_str). Owned by the handle. */
typedef struct assay_meta {
    uint32_t size;
    const char *key;
    int32_t type, item_type;
    uint64_t count;
    const void *data;
} assay_meta;

typedef struct assay_load_config {
    uint32_t size;
    const assay_option *options;
    uint32_t num_options;
} assay_load_config;

typedef struct assay_loader {
    uint32_t size;
    const char *const *formats; /* "gguf"; null-terminated list */
    /* 0 = not mine, 100 = certain. Reads at most the first 4 KiB. [control] */
    int32_t (*probe)(const char *path);
    /* Parses headers only (of every part of a split model; any part may be named). Every count,
       offset and name is checked here: counts before allocation, ranges inside their file, no
       overlap, names unique and valid UTF-8. CORRUPT: the text gives file, tensor or key, byte
       offset, expected and found. Afterwards read and map fail for the disk's reasons only.
       [control] */
    assay_status (*open)(const assay_host *host, const assay_load_config *config, const char *path,
                         void **handle, assay_error *err);
    void (*close)(void *handle); /* all mapped ranges must be released first. [control] */

    uint64_t (*meta_count)(void *handle);
    assay_status (*meta)(void *handle, uint64_t i, assay_meta *out);
    uint64_t (*tensor_count)(void *handle);
    assay_status (*tensor)(void *handle, uint64_t i, assay_tensor_info *out);
    uint32_t (*file_count)(void *handle);
    const char *(*file)(void *handle, uint32_t i);
    uint64_t (*file_bytes)(void *handle, uint32_t i);

    /* Read-only view of a byte range; no alignment promised beyond the tensor's own. Optional:
       null, or UNSUPPORTED. A file that shrank under the mapping is the operator's fault. [any] */
    assay_status (*map)(void *handle, uint32_t file, uint64_t offset, uint64_t bytes,
                        const void **out, assay_error *err);
    void (*unmap)(void *handle, uint32_t file, const void *ptr, uint64_t bytes);
    /* Fills dst fully or fails. Several threads may read one handle at once. [any] */
    assay_status (*read)(void *handle, uint32_t file, uint64_t offset, uint64_t bytes, void *dst,
                         assay_error *err);
    void (*will_need)(void *handle, uint32_t file, uint64_t offset, uint64_t bytes); /* a hint */
} assay_loader;

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ABI_LOADER_H */
