/* The smallest loader: a file that holds one f32 matrix.
 *
 *   bytes 0..7   "ASSAYMAT"
 *   bytes 8..15  rows and columns, u32 each, little endian
 *   then         rows * columns f32, row-major
 */
#include "abi/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 16u

typedef struct matrix_file {
    FILE *file;
    char path[4096];
    uint32_t rows, cols;
} matrix_file;

static assay_status fail(assay_error *err, assay_code code, const char *path, const char *what,
                         uint64_t expected, uint64_t found) {
    if (err != NULL) {
        err->code = code;
        snprintf(err->text, sizeof err->text, "%s: %s: expected %llu, found %llu", path, what,
                 (unsigned long long)expected, (unsigned long long)found);
    }
    return code;
}

static uint32_t u32_at(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int32_t matrix_probe(const char *path) {
    char magic[8];
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t got = fread(magic, 1, sizeof magic, file);
    fclose(file);
    return got == sizeof magic && memcmp(magic, "ASSAYMAT", 8) == 0 ? 100 : 0;
}

static assay_status matrix_open(const assay_host *host, const assay_load_config *config,
                                const char *path, void **handle, assay_error *err) {
    (void)host;
    if (config->num_options != 0)
        return fail(err, ASSAY_UNSUPPORTED, path, "number of options", 0, config->num_options);
    if (strlen(path) >= sizeof ((matrix_file *)0)->path)
        return fail(err, ASSAY_INVALID, "path", "length below", 4096, strlen(path));
    matrix_file *m = calloc(1, sizeof *m);
    if (m == NULL) return fail(err, ASSAY_NO_MEMORY, path, "bytes", sizeof *m, 0);
    strcpy(m->path, path);
    m->file = fopen(path, "rb");
    if (m->file == NULL) {
        free(m);
        return fail(err, ASSAY_IO, path, "a file that can be read", 1, 0);
    }
    unsigned char header[HEADER_BYTES];
    const size_t got = fread(header, 1, sizeof header, m->file);
    fseek(m->file, 0, SEEK_END);
    const uint64_t bytes = (uint64_t)ftell(m->file);
    assay_status status = ASSAY_OK;
    if (got != sizeof header || memcmp(header, "ASSAYMAT", 8) != 0) {
        status = fail(err, ASSAY_CORRUPT, path, "header bytes that begin with ASSAYMAT",
                      HEADER_BYTES, got);
    } else {
        m->rows = u32_at(header + 8);
        m->cols = u32_at(header + 12);
        /* The product of two u32 fits; times four it may not, so the file's size is divided instead. */
        const uint64_t elements = (uint64_t)m->rows * m->cols, after = bytes - HEADER_BYTES;
        if (elements == 0)
            status = fail(err, ASSAY_CORRUPT, path, "rows times columns of at least", 1, 0);
        else if (after % 4 != 0)
            status = fail(err, ASSAY_CORRUPT, path, "bytes of a last element", 4, after % 4);
        else if (after / 4 != elements)
            status = fail(err, ASSAY_CORRUPT, path, "elements after the header", elements, after / 4);
    }
    if (status != ASSAY_OK) {
        fclose(m->file);
        free(m);
        return status;
    }
    *handle = m;
    return ASSAY_OK;
}

static void matrix_close(void *handle) {
    matrix_file *m = handle;
    fclose(m->file);
    free(m);
}

static uint64_t matrix_meta_count(void *handle) {
    (void)handle;
    return 1;
}

static assay_status matrix_meta(void *handle, uint64_t i, assay_meta *out) {
    static const char architecture[] = "example";
    (void)handle;
    if (i != 0) return ASSAY_INVALID;
    out->size = sizeof *out;
    out->key = "general.architecture";
    out->type = ASSAY_META_STR;
    out->item_type = 0;
    out->count = sizeof architecture - 1;
    out->data = architecture;
    return ASSAY_OK;
}

static uint64_t matrix_tensor_count(void *handle) {
    (void)handle;
    return 1;
}

static assay_status matrix_tensor(void *handle, uint64_t i, assay_tensor_info *out) {
    const matrix_file *m = handle;
    if (i != 0) return ASSAY_INVALID;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->name = "matrix";
    out->format = "f32";
    out->rank = 2;
    out->shape[0] = m->rows;
    out->shape[1] = m->cols;
    out->offset = HEADER_BYTES;
    out->bytes = (uint64_t)m->rows * m->cols * 4;
    return ASSAY_OK;
}

static uint32_t matrix_file_count(void *handle) {
    (void)handle;
    return 1;
}

static const char *matrix_file_name(void *handle, uint32_t i) {
    return i == 0 ? ((matrix_file *)handle)->path : NULL;
}

static uint64_t matrix_file_bytes(void *handle, uint32_t i) {
    const matrix_file *m = handle;
    return i == 0 ? HEADER_BYTES + (uint64_t)m->rows * m->cols * 4 : 0;
}

/* Several threads may read one handle, so each call has a position of its own. */
static assay_status matrix_read(void *handle, uint32_t file, uint64_t offset, uint64_t bytes,
                                void *dst, assay_error *err) {
    matrix_file *m = handle;
    const uint64_t total = matrix_file_bytes(handle, 0);
    if (file != 0 || offset > total || bytes > total - offset)
        return fail(err, ASSAY_INVALID, m->path, "a range that ends by byte", total, offset + bytes);
    FILE *own = fopen(m->path, "rb");
    if (own == NULL) return fail(err, ASSAY_IO, m->path, "a file that can be read", 1, 0);
    fseek(own, (long)offset, SEEK_SET);
    const size_t got = fread(dst, 1, bytes, own);
    fclose(own);
    return got == bytes ? ASSAY_OK : fail(err, ASSAY_IO, m->path, "bytes read", bytes, got);
}

static const char *const formats[] = {"assaymat", NULL};

static const assay_loader loader = {
    .size = sizeof loader,
    .formats = formats,
    .probe = matrix_probe,
    .open = matrix_open,
    .close = matrix_close,
    .meta_count = matrix_meta_count,
    .meta = matrix_meta,
    .tensor_count = matrix_tensor_count,
    .tensor = matrix_tensor,
    .file_count = matrix_file_count,
    .file = matrix_file_name,
    .file_bytes = matrix_file_bytes,
    .read = matrix_read, /* map is optional: null */
};

static assay_status module_open(const assay_host *host, assay_error *err) {
    (void)host, (void)err;
    return ASSAY_OK;
}

static const void *module_query(const char *interface_id) {
    return strcmp(interface_id, ASSAY_KIND_LOADER) == 0 ? &loader : NULL;
}

static void module_close(void) {}

const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "example-loader",
    .version = "0.1.0",
    .vendor = "example",
    .build = "C11",
    .kinds = ASSAY_KIND_LOADER,
    .open = module_open,
    .query = module_query,
    .close = module_close,
};
